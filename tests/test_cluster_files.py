"""Cluster files, against Ray's own schema and preparation."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from mtcon_ray.spec import parse_spec

pytestmark = pytest.mark.ray
CLUSTER = Path(__file__).parent.parent / "cluster"
FILES = sorted(CLUSTER.glob("*.yaml"))


def read(path: Path) -> dict[str, Any]:
    """A cluster file as plain data."""
    raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(raw, dict)
    return raw


def schema() -> dict[str, Any]:
    """The schema that Ray's autoscaler ships."""
    import ray.autoscaler

    text = (Path(ray.autoscaler.__file__).parent / "ray-schema.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def test_there_are_cluster_files() -> None:
    assert CLUSTER / "local.yaml" in FILES


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_cluster_file_fits_rays_schema(path: Path) -> None:
    jsonschema.validate(read(path), schema())


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_rays_autoscaler_accepts_the_cluster_file(path: Path) -> None:
    """What a head does with `--autoscaling-config`: checks it, then bounds each node type."""
    from ray.autoscaler._private.util import fill_node_type_min_max_workers, validate_config

    config = read(path)
    validate_config(config)
    fill_node_type_min_max_workers(config)
    kinds = config["available_node_types"]
    assert config["head_node_type"] in kinds
    assert sum(kind["max_workers"] for kind in kinds.values()) >= 1


def test_an_unknown_key_breaks_rays_schema() -> None:
    """The schema is closed, so that the tests above mean something."""
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**read(CLUSTER / "local.yaml"), "max_worker": 2}, schema())


def test_local_cluster_holds_the_default_trial_and_no_trial_on_its_head() -> None:
    from mtcon_ray.plan import check_cluster
    from mtcon_ray.sweep.cluster import view_of

    view = view_of(str(CLUSTER / "local.yaml"))
    assert [k.cpus for k in view.kinds if k.name == "ray.head.default"] == [0]
    assert check_cluster(parse_spec({"name": "default"}), view) == 2
