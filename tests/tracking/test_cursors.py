"""Tests of the positions that a sender saves, in a file that a stranger may have written."""

import json
from pathlib import Path

from mtcon_ray.base.paths import cursors_file, parent_log
from mtcon_ray.base.root_files import make_folder
from mtcon_ray.tracking.cursors import saved


def test_positions_of_other_files_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "sweeps" / "theirs"
    make_folder(parent_log(folder).parent)
    parent_log(folder).write_text("\n")
    state = {"place": "p", "offsets": {"../../../x": 1, "trial-0001 (copy)": 1, "parent": 1}}
    cursors_file(folder).write_text(json.dumps(state))
    assert saved(folder) == ("p", {"parent": 1})
