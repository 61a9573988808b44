"""Shared fixtures: photographs where they are, and nothing of the user's touched."""

import os
import signal
from pathlib import Path

import pytest

from mtcon_ray.tracking.server import check_server

# Before anything imports Ray or MLflow: no token written into the home folder, nothing sent home.
os.environ["RAY_AUTH_MODE"] = "disabled"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
# Before anything imports torch: as many tests at a time as cores leave each a thread. With more
# the suite takes a quarter longer, most of it waiting for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell ignores Ctrl-C for what it starts in the background, and so would all processes here.
signal.signal(signal.SIGINT, signal.default_int_handler)

REPOSITORY = Path(__file__).parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--photos DIR`: the folder that holds fashion_shoes and fashion_products.

    `--crds DIR`: the folder that holds KubeRay's CRDs.

    `--write-golden`: write the methods' loss curves down anew instead of comparing them.
    """
    parser.addoption("--write-golden", action="store_true")
    parser.addoption("--crds", type=Path)
    parser.addoption("--photos", type=Path, default=REPOSITORY.parent / "shared" / "data")


@pytest.fixture(scope="session")
def photos(request: pytest.FixtureRequest) -> Path:
    """Folder of real photographs with several labels each."""
    folder: Path = request.config.getoption("--photos")
    if not (folder / "fashion_shoes" / "labels.csv").exists():
        pytest.skip(f"no photographs under {folder}; give their folder with --photos")
    return folder


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow database without runs."""
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    check_server(f"sqlite:///{path}")
    return path
