"""How far each spool of a folder has been sent, on disk, so that a restart goes on there."""

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any


class Cursors:
    """Byte offsets by spool name, and artifacts put off, for one server and experiment.

    Another server or experiment starts from zero: it has none of it.
    """

    def __init__(self, path: Path, uri: str, experiment: str) -> None:
        self.path = path
        self.offsets: dict[str, int] = {}
        self.late: list[dict[str, Any]] = []  # {"run": name, "event": artifact event}
        # A digest, since the URI may hold a password.
        self._place = sha256(f"{uri}\n{experiment}".encode()).hexdigest()[:32]
        self.load()

    def load(self) -> None:
        """Read what was saved for this server; anything else is taken as nothing sent."""
        try:
            saved = json.loads(self.path.read_bytes())
            if saved["place"] == self._place:
                self.offsets, self.late = saved["offsets"], saved["late"]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            self.offsets, self.late = {}, []

    def save(self) -> None:
        """Replace the file in one step. A lost write only means that events are sent twice."""
        state = {"place": self._place, "offsets": self.offsets, "late": self.late}
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(state))
        os.replace(new, self.path)
