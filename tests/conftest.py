"""Shared fixtures: photographs where they are, and nothing of the user's touched."""

from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--photos DIR`: the folder that holds fashion_shoes and fashion_products."""
    parser.addoption("--photos", type=Path, default=REPOSITORY.parent / "shared" / "data")


@pytest.fixture(scope="session")
def photos(request: pytest.FixtureRequest) -> Path:
    """Folder of real photographs with several labels each."""
    folder: Path = request.config.getoption("--photos")
    if not (folder / "fashion_shoes" / "labels.csv").exists():
        pytest.skip(f"no photographs under {folder}; give their folder with --photos")
    return folder
