"""The servers that the documents show: each is started on a port of its own, asked, and ended."""

import re
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from cluster.try_autoscaling import free_ports
from tests.pages import run_by

SHOWN = run_by("tests/test_docs_servers.py::test_a_server_that_is_shown_answers")
COMMANDS = [
    command
    for block in SHOWN
    for command in re.findall(r"(?m)^(?:\S+=\S+ )?(mlflow .*(?:\\\n.*)*)$", block.code)
]


@pytest.mark.soak
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command.split()[:2]))
def test_a_server_that_is_shown_answers(command: str, tmp_path: Path) -> None:
    """With a database and a folder of its own."""
    (port,) = free_ports(1)
    words = command.replace("\\\n", " ").split()
    own = {
        "--port": str(port),
        "--backend-store-uri": f"sqlite:///{tmp_path}/mlflow.db",
        "--artifacts-destination": str(tmp_path / "artifacts"),
    }
    for option, value in own.items():
        if option in words:
            words[words.index(option) + 1] = value
    program = str(Path(sys.executable).with_name("mlflow"))
    with subprocess.Popen([program, *words[1:]], cwd=tmp_path, start_new_session=True) as server:
        try:
            _wait_for(f"http://127.0.0.1:{port}/health", server)
        finally:
            server.terminate()


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while True:
        try:
            with urlopen(url, timeout=5) as answer:
                assert answer.read() == b"OK"
                return
        except URLError:
            assert server.poll() is None, f"{server.args!r} ended"
            assert time.monotonic() < deadline, f"no answer at {url}"
            time.sleep(0.5)
