"""Fair share of several sweeps on one cluster: a small sweep does not starve."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from mtcon_ray.cluster.fair_share import share_of
from mtcon_ray.results import SweepResults, load_sweep
from mtcon_ray.tracking.event_log import EventLog
from mtcon_ray.tracking.events import Reported
from tests.cluster.user import REPOSITORY, SPEC
from tests.waiting import PATIENCE_SECONDS, wait_until


@pytest.mark.parametrize(
    ("fitting", "sweeps", "most", "share"),
    [(8, 1, 8, 8), (8, 2, 8, 4), (8, 3, 8, 2), (2, 5, 2, 1), (8, 2, 3, 3), (8, 0, 8, 8)],
)
def test_each_sweep_has_its_part_and_at_least_one(
    fitting: int, sweeps: int, most: int, share: int
) -> None:
    assert share_of(fitting, sweeps, most) == share


def last_epoch(sweep: SweepResults) -> int:
    """Returns the time of the last epoch of any trial, in milliseconds."""
    return max(
        int(event.time_ms)
        for trial in sweep.trials
        for event in EventLog.read(sweep.folder / "spool" / f"{trial.name}.jsonl")
        if isinstance(event, Reported)
    )


@pytest.mark.ray
@pytest.mark.soak
def test_a_small_sweep_runs_beside_a_large_one(
    tmp_path: Path, home: dict[str, str], head: Callable[[], str]
) -> None:
    """The large sweep uses both CPUs when the small one starts, and has work for minutes."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "mtcon_ray").symlink_to(REPOSITORY / "mtcon_ray")
    temperatures = [round(0.1 + i / 200, 3) for i in range(120)]
    for name, grid, epochs in (("large", temperatures, 40), ("small", [0.1, 0.5], 2)):
        spec = {**SPEC, "name": name, "train": {"epochs": epochs, "batch_size": 32}}
        spec["evaluate"] = {**SPEC["evaluate"], "every": 1}
        spec["search"] = {**SPEC["search"], "space": {"method.temperature": {"grid": grid}}}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(spec))
    subprocess.run(
        ["ray", "get-auth-token", "--generate"], env=home, check=True, capture_output=True
    )
    environment = {**home, "RAY_AUTH_MODE": "token", "RAY_API_SERVER_ADDRESS": head()}

    def submit(*arguments: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "mtcon_ray", "submit", *arguments],
            env={**environment, "PYTHONPATH": str(REPOSITORY)},
            cwd=folder, capture_output=True, text=True, timeout=PATIENCE_SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]

    sweeps = tmp_path / "mtcon-ray" / "sweeps"
    submit("large.yaml", "--no-follow")
    wait_until(lambda: len(list(sweeps.glob("large-1/checkpoints/*/last.pt"))) > 1, "two trials")
    submit("small.yaml")
    small, large = load_sweep(sweeps / "small-1"), load_sweep(sweeps / "large-1")
    assert [t.status for t in small.trials] == ["FINISHED"] * 2
    # By the times of their events, because the end of a job is reported seconds later.
    assert last_epoch(small) < last_epoch(large), "the small sweep waited for the large one's end"
