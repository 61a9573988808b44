"""Archives of images."""

import tarfile
from pathlib import Path


def pack(folder: Path, archive: Path, below: str = ".") -> None:
    """Writes a tar of a folder, by default of files `./...`, as `tar -C folder .` does."""
    with tarfile.open(archive, "w:gz" if archive.suffix == ".gz" else "w") as tar:
        tar.add(folder, arcname=below)
