"""Fault injection: its page, and one kind on real processes."""

from pathlib import Path

import pytest

from benchmarks.faults import program
from benchmarks.faults.jobs import REPOSITORY, TRAIN, Undisturbed
from benchmarks.faults.rounds import recorded
from mtcon_ray.base.paths import MODEL_FILE
from mtcon_ray.training import checkpoint


def test_each_kind_is_on_its_page() -> None:
    page = (REPOSITORY / "docs" / "reliability.md").read_text(encoding="utf-8")
    rows = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    assert rows[: len(program.KINDS)] == list(program.KINDS)


@pytest.mark.soak
@pytest.mark.mlflow
def test_a_killed_driver_goes_on_and_another_network_is_noticed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(["--rounds", "2", "--seed", "7", "--folder", str(tmp_path), "driver"])
    assert "| driver, train | 2 | 2 | 0 | 0 |" in capsys.readouterr().out
    # The undisturbed network is changed: the network of the next round differs from it.
    path = Undisturbed(tmp_path, TRAIN).run / MODEL_FILE
    state = checkpoint.load(path)
    del state["format"]
    next(iter(state["network"].values())).add_(1)
    checkpoint.save(path, state)
    assert not program.main(["--rounds", "3", "--seed", "7", "--folder", str(tmp_path), "driver"])
    assert recorded(tmp_path)[-1][1].problems == ["cut: 1 parameters are not bit-equal"]
