"""Shared fixtures, and an environment that leaves the user's files untouched."""

import os
import signal
from importlib.metadata import version
from pathlib import Path

import pytest

from mtcon_ray.display import plotting
from mtcon_ray.tracking.mlflow_server import check_server

# Before Ray and MLflow are imported: no token file in the home folder, no usage statistics.
os.environ["RAY_AUTH_MODE"] = "disabled"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
# Ray gives its workers a low priority (15). Beside other tests they would wait for minutes.
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  # the name that Ray reads
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
# Before torch is imported: tests run in parallel, one per core. With more threads per test the
# suite takes a quarter longer, because threads compete for cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Tests start hundreds of processes. Without bytecode each compiles all that it imports, for Ray and
# MLflow some ten seconds.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A shell starts background jobs with SIGINT ignored, which child processes would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What Ray leaves behind at its end, which later versions do not.
LEFT_BY_RAY = {
    "2.55": ("ignore:.*/dev/null:ResourceWarning", "ignore:subprocess .* is still:ResourceWarning")
}

TESTS = Path(__file__).parent
REPOSITORY = TESTS.parent
# Folders and files.
UNMEASURED = {
    "benchmarks", "experiments",
    "test_contract.py", "test_driver.py", "test_gpu.py", "test_logistic.py",
    "test_ranks.py", "test_suggester.py", "test_throughput.py", "test_view_moments.py",
}  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Lets warnings of the installed Ray's own code be no errors."""
    for line in LEFT_BY_RAY.get(version("ray").rpartition(".")[0], ()):
        config.addinivalue_line("filterwarnings", line)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options of this test suite.

    `--photos DIR`: folder with fashion_shoes and fashion_products.
    `--write-golden`: write the methods' loss curves instead of comparing with them.
    """
    parser.addoption("--write-golden", action="store_true")
    parser.addoption("--photos", type=Path, default=REPOSITORY.parent / "shared" / "data")


@pytest.hookimpl(trylast=True)  # after -m has left out items
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves tests out of the coverage that run other code, or the same code many times.

    Measuring slows down all Python code: torch's simulation of a GPU takes twice as long with it.
    """
    for item in items:
        if item.path.is_relative_to(TESTS) and UNMEASURED & {*item.path.relative_to(TESTS).parts}:
            item.add_marker(pytest.mark.no_cover)
    # Files that start Ray take minutes, most of it waiting. At the end they would leave the other
    # workers without work.
    of_ray = {item.path for item in items if item.get_closest_marker("ray")}
    items.sort(key=lambda item: item.path not in of_ray)


@pytest.fixture(scope="session")
def photos(request: pytest.FixtureRequest) -> Path:
    """Returns the folder of photographs with several labels each; skips without it."""
    folder: Path = request.config.getoption("--photos")
    if not (folder / "fashion_shoes" / "labels.csv").exists():
        pytest.skip(f"no photographs under {folder}; give their folder with --photos")
    return folder


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets figures be put together but not drawn, which takes most of a second each."""
    monkeypatch.setattr(plotting, "png", lambda figure: b"PNG")


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the file of an MLflow database without runs, one for all workers of pytest-xdist."""
    base = tmp_path_factory.getbasetemp()
    path = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "mlflow.db"
    check_server(f"sqlite:///{path}")
    return path
