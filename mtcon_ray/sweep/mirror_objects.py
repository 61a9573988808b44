"""The objects of a sweep's mirror, and the list of the objects of a state."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from pyarrow.fs import AwsStandardS3RetryStrategy, FileSelector, FileSystem, FileType, S3FileSystem

from mtcon_ray.base.paths import (
    LAST_FILE,
    MODEL_FILE,
    PREDICTIONS_FILE,
    PREVIOUS_FILE,
    REMOVED_FILE,
)
from mtcon_ray.base.root_files import below
from mtcon_ray.data.remote import CHUNK_BYTES, open_store, store_errors
from mtcon_ray.errors import SweepError

LIST = "mirror.json"
FORMAT = 1
# pyarrow asks for an object's size first. If the object is replaced before the read, it is cut.
READS = 3
# Files of a trial that stay after its end.
KEPT = (MODEL_FILE, PREDICTIONS_FILE, REMOVED_FILE)
_OF_TRIAL = "|".join(map(re.escape, (LAST_FILE, PREVIOUS_FILE, *KEPT)))
GROWING = re.compile(r"events\.jsonl")
WHOLE = re.compile(rf"spec\.yaml|plan\.json|sent\.json|checkpoints/trial-\d+/({_OF_TRIAL})")
VERSION = re.compile(rf"({WHOLE.pattern})-[0-9a-f]+")


@dataclass(frozen=True)
class Entry:
    """A file of the mirrored state: its object, relative to the mirror, and its size in bytes.

    A growing file has the hash of its content, any other file its modification time.
    """

    object: str
    size: int
    sha256: str | None = None
    mtime_ns: int | None = None


Files = Mapping[str, Entry]
"""The files of a mirrored state by their paths within the sweep's folder."""


class Objects:
    """The objects below a URL. Each method raises DataError if the store fails."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._failure = "cannot use storage.mirror"
        self._opened: tuple[FileSystem, str] | None = None

    def read_list(self) -> Files | None:
        """Returns the mirrored state, or None if it is missing. Raises SweepError for damage."""
        with store_errors(self.url, self._failure):
            files, base = self._open()
            if files.get_file_info(f"{base}/{LIST}").type == FileType.NotFound:
                return None
        try:
            raw = self._read_json(LIST)
            if raw["format"] != FORMAT:
                raise ValueError(f"its format is {raw['format']!r}")
            found = {name: Entry(**entry) for name, entry in raw["files"].items()}
            # A bucket may be of another author: no name may lead out of the sweep's folder.
            if wrong := [n for n in found if not (GROWING.fullmatch(n) or WHOLE.fullmatch(n))]:
                raise ValueError(f"it lists the name {wrong[0]!r}")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise SweepError(
                f"{self.url}/{LIST} was not written by this version of mtcon-ray: {error}"
            ) from None
        return found

    def _read_json(self, name: str) -> Any:
        """Returns the content of a JSON object. Raises ValueError if it is not JSON."""
        for _ in range(READS - 1):
            try:
                return json.loads(b"".join(self.read(name)))
            except ValueError:
                continue
        return json.loads(b"".join(self.read(name)))

    def write_list(self, files: Files) -> None:
        """Replaces the mirrored state."""
        raw = {"format": FORMAT, "files": {name: asdict(entry) for name, entry in files.items()}}
        self.write(LIST, [json.dumps(raw, indent=1).encode()])

    def names(self) -> list[str]:
        """Returns the names of all objects."""
        with store_errors(self.url, self._failure):
            files, base = self._open()
            found = files.get_file_info(FileSelector(base, allow_not_found=True, recursive=True))
        paths = [info.path for info in found if info.type == FileType.File]
        return [path.removeprefix(base).removeprefix("/") for path in paths]

    def read(self, name: str) -> Iterator[bytes]:
        """Yields an object's bytes."""
        with store_errors(self.url, self._failure):
            files, base = self._open()
            with files.open_input_stream(f"{base}/{name}") as stream:
                while data := stream.read(CHUNK_BYTES):
                    yield data

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Creates or replaces an object. If `chunks` raises, the object may hold a part of them."""
        with store_errors(self.url, self._failure):
            files, base = self._open()
            with files.open_output_stream(f"{base}/{name}") as stream:
                for data in chunks:
                    stream.write(data)

    def delete(self, name: str) -> None:
        """Removes an object."""
        with store_errors(self.url, self._failure):
            files, base = self._open()
            files.delete_file(f"{base}/{name}")

    def _open(self) -> tuple[FileSystem, str]:
        if self._opened is None:
            files, base = open_store(self.url, "storage.mirror")
            self._opened = _impatient(files), base
        return self._opened


def _impatient(files: FileSystem) -> FileSystem:
    """Returns the same store, with a short timeout of each request if it is S3.

    pyarrow's requests to S3 wait up to 100 s by default, and a process waits for them at its end.
    """
    if not isinstance(files, S3FileSystem):
        return files
    return S3FileSystem(
        region=files.region,
        # pyarrow reads these variables when it parses a URL, but not here.
        endpoint_override=os.environ.get("AWS_ENDPOINT_URL_S3")
        or os.environ.get("AWS_ENDPOINT_URL"),
        # Read now: a driver removes its keys from its environment before it starts trials.
        access_key=os.environ.get("AWS_ACCESS_KEY_ID"),
        secret_key=os.environ.get("AWS_SECRET_ACCESS_KEY"),
        session_token=os.environ.get("AWS_SESSION_TOKEN"),
        connect_timeout=3,
        request_timeout=4,
        allow_delayed_open=True,  # a single request for a small object, not three
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=2),
    )


def url_of(mirror: str, name: str) -> str:
    """Returns the URL of a sweep's mirror."""
    return f"{mirror.rstrip('/')}/{name}"


def first_missing(folder: Path, files: Files) -> str | None:
    """Returns the first growing file with mirrored lines that the folder lacks."""
    for name, entry in files.items():
        if entry.sha256 is not None and _hash(folder / name, entry.size) != entry.sha256:
            return name
    return None


def _hash(path: Path, size: int) -> str | None:
    try:
        with open(path, "rb", opener=below) as file:
            return sha256(file.read(size)).hexdigest()
    except FileNotFoundError:
        return None
