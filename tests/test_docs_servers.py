"""Tests of the servers in the documentation: each is started on a free port and answers."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.try_autoscaling import free_ports
from tests.pages import run_by
from tests.waiting import answers, wait_until

SHOWN = run_by("tests/test_docs_servers.py::test_a_server_that_is_shown_answers")
COMMANDS = [
    command
    for block in SHOWN
    for command in re.findall(r"(?m)^(?:\S+=\S+ )?(mlflow .*(?:\\\n.*)*)$", block.code)
]


@pytest.mark.soak
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command.split()[:2]))
def test_a_server_that_is_shown_answers(command: str, tmp_path: Path) -> None:
    """The server gets its own database and artifact folder."""
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
            wait_until(lambda: answers(f"http://127.0.0.1:{port}/health"), "MLflow", process=server)
        finally:
            server.terminate()
