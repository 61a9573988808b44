"""A small sweep as it is stored on disk."""

import shutil
from pathlib import Path

STORED = Path(__file__).parent / "stored" / "sweep"


def copy_stored(folder: Path) -> None:
    """Copies the sweep."""
    shutil.copytree(STORED, folder)
