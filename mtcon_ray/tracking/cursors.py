"""The sender's position in each event log, stored on disk so that a restart resumes there."""

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any


class Cursors:
    """Byte offsets by event log name, and deferred artifacts, for one server and experiment.

    With another server or experiment all offsets start at zero, since nothing was sent there yet.
    """

    def __init__(self, path: Path, uri: str, experiment: str) -> None:
        self.path = path
        self.offsets: dict[str, int] = {}
        self.late: list[dict[str, Any]] = []  # {"run": name, "event": artifact event}
        # A digest, since the URI may hold a password.
        self._place = sha256(f"{uri}\n{experiment}".encode()).hexdigest()[:32]
        self.load()

    def load(self) -> None:
        """Reads the saved state of this server and experiment.

        A missing file, a damaged file and one of another server all mean that nothing was sent.
        Sending events again is harmless; skipping events that were never sent would lose them.
        """
        try:
            saved = json.loads(self.path.read_bytes())
            if saved["place"] == self._place:
                self.offsets, self.late = saved["offsets"], saved["late"]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            self.offsets, self.late = {}, []

    def save(self) -> None:
        """Replaces the file atomically. A lost write only means that events are sent twice."""
        state = {"place": self._place, "offsets": self.offsets, "late": self.late}
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(state))
        os.replace(new, self.path)
