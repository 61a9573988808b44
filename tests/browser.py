"""Chromium without a window, which prints a page after its scripts have run."""

import shutil

import pytest

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
HEADLESS = [
    str(PROGRAM), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
    "--dump-dom",
]  # fmt: skip
BROWSER = [pytest.mark.slow, pytest.mark.skipif(not PROGRAM, reason="there is no Chromium")]
