"""A stranger at every door of a cluster that was started as cluster/README.md says."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

pytestmark = pytest.mark.ray


def answer(url: str, token: str | None = None, job: str | None = None) -> int:
    """The status of a GET, or with a `job` of the submission of that command line."""
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    data = json.dumps({"entrypoint": job}).encode() if job else None
    try:
        with urlopen(Request(url, data, headers), timeout=10) as response:
            return int(response.status)
    except HTTPError as error:
        status = error.code
        error.close()
        return status


def test_a_stranger_starts_nothing(
    tmp_path: Path, home: dict[str, str], head: Callable[[], str]
) -> None:
    subprocess.run(
        ["ray", "get-auth-token", "--generate"], env=home, check=True, capture_output=True
    )
    address = head()
    token = (tmp_path / ".ray" / "auth_token").read_text().strip()
    ran = tmp_path / "ran"
    for path in ("api/jobs/", "api/version", "nodes?view=summary", "logs", "api/v0/tasks"):
        assert answer(f"{address}/{path}") == 401, path
    assert answer(f"{address}/api/jobs/", job=f"touch {ran}") == 401
    assert answer(f"{address}/api/jobs/", "wrong", job=f"touch {ran}") == 403
    assert answer(f"{address}/api/jobs/", token) == 200, "so that the rest means something"
    environment = {**home, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a" * 64}
    submit = [sys.executable, "-m", "mtcon_ray", "jobs", "--address", address]
    told = subprocess.run(
        submit, env={**environment, "PYTHONPATH": os.getcwd()}, capture_output=True
    )
    assert told.returncode == 2
    assert b"oken" in told.stderr
    assert not ran.exists()
