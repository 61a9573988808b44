"""Other nodes of a cluster: their versions beside those of the driver, and their decoding."""

import re
from pathlib import Path
from threading import Event, Timer
from typing import Any
from unittest.mock import Mock, patch

import numpy as np
import pytest
import ray
from PIL import Image
from ray.exceptions import RayTaskError, TaskUnschedulableError

from benchmarks.faults.nodes import cluster_of
from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.cluster import nodes
from mtcon_ray.cluster.jobs import versions
from mtcon_ray.cluster.nodes import check_nodes, lent_decoders, look
from mtcon_ray.data.decoding import DecoderLostError, decode_files, decode_there, stamp
from mtcon_ray.data.image_files import ImageFolder
from mtcon_ray.errors import ResourceError
from mtcon_ray.spec.run_spec import parse_spec
from mtcon_ray.sweep.run import run_sweep
from tests.data.folder_store import folder_store
from tests.specs import TINY


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Returns what the nodes answer, by address, of a cluster that the test fills."""
    answers: dict[str, Any] = {}

    def alive() -> list[dict[str, Any]]:
        return [{"Alive": True, "NodeID": a, "NodeManagerAddress": a} for a in answers]

    ray = Mock(nodes=alive, get=lambda address: Mock(side_effect=[answers[address]])())
    remote = lambda scheduling_strategy: Mock(remote=lambda _: scheduling_strategy)  # noqa: E731
    ray.remote.return_value.return_value.options = remote
    monkeypatch.setattr(nodes, "ray", ray)
    monkeypatch.setattr(nodes, "NodeAffinitySchedulingStrategy", lambda node_id, soft: node_id)
    return answers


@pytest.mark.parametrize("name", ["torch", "python", "ray", "mtcon-ray"])
def test_other_versions_are_named_first(name: str, tmp_path: Path, cluster: dict[str, Any]) -> None:
    here = versions()
    cluster["10.0.0.1"] = "", {**here, name: "0.7"}
    assert check_nodes(tmp_path / "sweeps" / "a") == [], "the only node is this one"
    cluster["10.0.0.2"] = "", here
    told = f"10.0.0.1 has {name} 0.7 (here {here[name]})"
    if name == "torch":
        assert check_nodes(tmp_path / "sweeps" / "a") == [told]
    else:
        with pytest.raises(ResourceError, match=re.escape(f"mtcon-ray: {told}; install one")):
            check_nodes(tmp_path / "sweeps" / "a")
    assert list(tmp_path.iterdir()) == []


def test_a_node_without_package_or_root_is_named(tmp_path: Path, cluster: dict[str, Any]) -> None:
    cluster["10.0.0.1"] = "", versions()
    lost = ModuleNotFoundError("No module named 'mtcon_ray'")
    cluster["10.0.0.2"] = RayTaskError("look", f"Traceback\nModuleNotFoundError: {lost}", lost)
    with pytest.raises(ResourceError, match=r"10\.0\.0\.2 has mtcon-ray that .*: No module named"):
        check_nodes(tmp_path / "sweeps" / "a")
    cluster["10.0.0.2"] = TaskUnschedulableError("the node doesn't exist any more")
    assert check_nodes(tmp_path / "sweeps" / "a") == [], "the node was lost during the check"
    cluster["10.0.0.2"] = "no", versions()
    with pytest.raises(ResourceError, match=r"got .* fails on 10\.0\.0\.2 \(no\); name a folder"):
        check_nodes(tmp_path / "sweeps" / "a")
    assert list(tmp_path.iterdir()) == []
    assert look(str(tmp_path)) == ("", versions())
    assert look(str(tmp_path / "none"))[0] == "it is not there"


def test_each_node_must_write_to_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, url = folder_store(tmp_path / "store", monkeypatch), "s3://bucket/lab/sweeps/a"
    assert look(url) == ("", versions())
    assert store.names() == set()
    store.refuse("PUT")
    assert "503 Slow Down" in look(url)[0]


@pytest.fixture
def photographs(tmp_path: Path) -> tuple[ImageFolder, list[str]]:
    for level in range(3):
        Image.new("L", (9, 9), 100 * level).save(tmp_path / f"{level}.png")
    return ImageFolder(tmp_path), ["0.png", "1.png", "2.png", "absent.png"]


HOW: Any = 8, "squash", False


@pytest.mark.ray
def test_a_node_decodes_until_it_is_lost(photographs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node of one core gets two decoders. What it cannot decode is decoded again here."""
    files, names = photographs
    here, cancel, stopped = Mock(side_effect=decode_files), Mock(), Event()
    monkeypatch.setattr(ray, "cancel", cancel)
    monkeypatch.setattr("mtcon_ray.data.decoding.decode_files", here)
    with cluster_of(1, 1) as cluster:
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        monkeypatch.setattr(ray, "available_resources", lambda: {"CPU": 1.0})
        with lent_decoders(Mock(), stopped) as decoders:
            assert decoders == [], "the free core may be the driver's"
        monkeypatch.setattr(ray, "available_resources", lambda: {"CPU": 2.0})
        with lent_decoders(Mock(), stopped) as decoders:
            first, second = decoders
            for some, calls in ((names[:3], 0), (names, 1)):
                expected = decode_files(files, some, *HOW)
                images, reasons = first(files, some, *HOW)
                assert (images == expected[0]).all()
                assert (reasons, here.call_count) == (expected[1], calls)
            cluster.remove_node(cluster.list_all_nodes()[1], allow_graceful=False)
            monkeypatch.setattr(nodes, "DECODING_SECONDS", 1.0)
            with pytest.raises(DecoderLostError):
                first(files, names, *HOW)
            monkeypatch.setattr(nodes, "DECODING_SECONDS", 1e9)
            Timer(0.1, stopped.set).start()
            with pytest.raises(DecoderLostError):
                second(files, names, *HOW)
            assert cancel.call_count == 2


def test_a_node_with_other_files_or_versions_decodes_nothing(photographs: Any) -> None:
    files, names = photographs
    same = stamp(files, names)
    with patch("mtcon_ray.data.decoding.np.empty", np.ones):
        images, reasons = decode_there(str(files.root), names, same, *HOW)
    assert [image.max() for image in images] == [0, 100, 200, 0], "the last one cannot be read"
    assert reasons == {3: "no such file"}
    with patch("mtcon_ray.data.decoding.VERSIONS", []), pytest.raises(DecoderLostError):
        decode_there(str(files.root), names, same, *HOW)
    Image.new("L", (9, 9), 255).save(files.root / "1.png")
    with pytest.raises(DecoderLostError):
        decode_there(str(files.root), names, same, *HOW)


def test_nobody_else_decodes_without_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with lent_decoders(Mock(), Event()) as decoders:
        assert decoders == []


def test_a_sweep_asks_other_nodes(tmp_path: Path) -> None:
    prepare = Mock(side_effect=LookupError)
    with patch("mtcon_ray.sweep.run.prepare", prepare), pytest.raises(LookupError):
        run_sweep(parse_spec({**TINY, "name": "a"}), root=tmp_path, callbacks=Callbacks())
    assert prepare.call_args.args[-1].func is lent_decoders
