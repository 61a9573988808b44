"""The start of matplotlib, which makes all figures."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_home_that_cannot_be_written_prints_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text("a file in the folder's place")
    variables = {name: value for name, value in os.environ.items() if name != "MPLCONFIGDIR"}
    done = subprocess.run(
        [sys.executable, "-c", "import mtcon_ray.report.plotting"], capture_output=True, text=True,
        env={**variables, "HOME": str(home), "XDG_CONFIG_HOME": str(home), "XDG_CACHE_HOME": ""},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
