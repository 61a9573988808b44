"""Audit of trials with several workers, which train on while Tune stops them."""

from pathlib import Path

import pytest
import yaml

from mtcon_ray.base.paths import SPEC_FILE, checkpoint_folder
from mtcon_ray.spec.run_spec import parse_spec
from mtcon_ray.sweep.audit import Audit
from tests.sweep.written_sweep import save_model


@pytest.mark.parametrize(
    ("workers", "epoch", "problems"),
    [
        (2, 3, []),
        ([1, 2], 3, []),
        (1, 3, ["it is of epoch 3 with 0.5000; the event log selects epoch 2 with 0.1200"]),
        (2, 4, ["it is of epoch 4 with 0.5000; the event log selects epoch 2 with 0.1200"]),
    ],
)
def test_a_stopped_trial_of_several_workers_may_have_the_network_of_the_next_probe(
    folder: Path, workers: int | list[int], epoch: int, problems: list[str]
) -> None:
    raw = yaml.safe_load((folder / SPEC_FILE).read_text())
    raw["resources"]["workers"] = workers
    (folder / SPEC_FILE).write_text(yaml.safe_dump(raw))
    own = parse_spec(raw).trial({"train.lr": 0.2})
    save_model(checkpoint_folder(folder, "trial-0001"), own, epoch, 0.5, "model.pt")
    assert [finding.problem for finding in Audit(folder).files()] == problems
