"""Standard streams that are full, closed or gone."""

import errno
import sys
from pathlib import Path
from unittest.mock import Mock

import click
import pytest

from mtcon_ray.display.terminal import drop_unwritten, say
from tests.processes import REPOSITORY, run

FULL = OSError(errno.ENOSPC, "No space left on device")


def test_only_a_message_may_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    echo = Mock(side_effect=FULL)
    monkeypatch.setattr(click, "echo", echo)
    with pytest.raises(OSError, match="No space left"):
        say("x")
    say("x", err=True)
    assert echo.call_count == 2


def test_what_a_full_stream_refuses_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python flushes again at its exit, and would change the exit code."""
    monkeypatch.setattr(sys, "stdout", Mock(flush=Mock(side_effect=FULL)))
    drop_unwritten()
    assert sys.stdout is None
    drop_unwritten()


def test_no_file_takes_the_place_of_a_closed_stream(tmp_path: Path) -> None:
    """A child process would print into it."""
    code = (
        "import os, sys\n"
        "from mtcon_ray.display.terminal import open_closed_streams\n"
        "open_closed_streams()\n"
        "with open(sys.argv[1], 'w') as file:\n"
        "    os.system('echo noise; echo noise >&2')\n"
        "    print('noise')\n"
        "    file.write(str(file.fileno() > 2))\n"
    )
    words = ("sh", "-c", '"$@" <&- >&- 2>&-', "sh", sys.executable, "-c", code)
    run([*words, str(tmp_path / "file")], cwd=REPOSITORY)
    assert (tmp_path / "file").read_text() == "True"
