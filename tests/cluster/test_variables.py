"""Environment variables of a driver: AWS's keys, and those of a submitted job."""

import os
from pathlib import Path
from unittest.mock import Mock

import boto3
import pytest

from mtcon_ray.cluster import connection
from mtcon_ray.cluster.connection import AWS_KEYS, connected, hidden_aws_keys
from mtcon_ray.data import objects


def test_keys_leave_the_environment_and_stay_with_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow sends artifacts by boto3, in a thread of the driver."""
    from ray.tune.execution import class_cache

    assert {n for n in class_cache.ENV_VARS_TO_PROPAGATE if n.startswith("AWS_")} <= AWS_KEYS.keys()
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    for name in AWS_KEYS:
        monkeypatch.setenv(name, f"value of {name}")
    with hidden_aws_keys():
        with hidden_aws_keys():  # a session within a session
            assert not AWS_KEYS.keys() & os.environ.keys()
        assert objects._keys["access_key"] == "value of AWS_ACCESS_KEY_ID"
        found = boto3.DEFAULT_SESSION.get_credentials()
        assert found.secret_key == "value of AWS_SECRET_ACCESS_KEY"
        assert found.token in ("value of AWS_SESSION_TOKEN", "value of AWS_SECURITY_TOKEN")
    assert objects._keys == {}  # other keys may follow
    assert os.environ["AWS_ACCESS_KEY_ID"] == "value of AWS_ACCESS_KEY_ID"


def test_variables_of_a_submitted_job_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray raises an error if a driver sets a variable of its job again."""
    given: list[dict[str, str]] = []
    monkeypatch.setattr(connection, "ray", Mock(is_initialized=lambda: False))
    monkeypatch.setattr(connection, "_open_session", given.append)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    for address in ("", "head:6379"):
        monkeypatch.setenv("RAY_ADDRESS", address)
        with connected(tmp_path / "ray.log", {"OMP_NUM_THREADS": "1", "OWN": "2"}):
            assert os.environ["OWN"] == "2"
    assert given == [{"OMP_NUM_THREADS": "1", "OWN": "2"}, {"OWN": "2"}]
