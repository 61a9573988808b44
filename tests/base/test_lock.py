"""Tests of the lock that allows one driver per folder."""

from pathlib import Path

import pytest

from mtcon_ray.base.lock import driver_lock, is_driven
from mtcon_ray.errors import SweepError
from tests.processes import run_python


def test_second_driver_is_refused_and_told_of_the_first(tmp_path: Path) -> None:
    with driver_lock(tmp_path):
        assert is_driven(tmp_path)
        told = r"already running, driven by process \d+ on"
        with pytest.raises(SweepError, match=told), driver_lock(tmp_path):
            pass
    assert not is_driven(tmp_path)
    with driver_lock(tmp_path):
        pass


def test_death_of_the_holder_frees_it(tmp_path: Path) -> None:
    code = (
        "import sys, os, pathlib; from mtcon_ray.base.lock import driver_lock\n"
        "with driver_lock(pathlib.Path(sys.argv[1])):\n"
        "    print('held', flush=True); os.kill(os.getpid(), 9)\n"
    )
    assert run_python("-c", code, tmp_path, code=-9).stdout == "held\n"
    assert not is_driven(tmp_path)
