"""The dataset input of a run, with a readable and with an unreadable spec."""

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.mlflow


@pytest.mark.parametrize(
    ("spec", "named"),
    [({"name": "a"}, "synthetic"), ({"name": "a", "of_another_version": 1}, None), (None, None)],
)
def test_a_record_is_sent_whoever_wrote_its_spec(
    spec: dict[str, Any] | None, named: str | None, tmp_path: Path
) -> None:
    from mtcon_ray.records.events import Started
    from mtcon_ray.tracking.dataset_input import dataset_input
    from mtcon_ray.tracking.provenance import FINGERPRINT

    if spec is not None:
        (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    found = dataset_input(tmp_path, Started(params={}, tags={FINGERPRINT: "0123456789"}))
    assert (found.dataset.name if found else None) == named
    assert dataset_input(tmp_path, Started(params={}, tags={})) is None
