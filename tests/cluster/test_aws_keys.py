"""AWS's keys in the environment of a driver, which Tune would write into command lines."""

import os

import boto3
import pytest

from mtcon_ray.cluster.connection import AWS_KEYS, hide_aws_keys
from mtcon_ray.cluster.environment import restored_environment


def test_keys_leave_the_environment_and_stay_with_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow sends artifacts by boto3, in a thread of the driver."""
    from ray.tune.execution import class_cache

    passed_on = {n for n in class_cache.ENV_VARS_TO_PROPAGATE if n.startswith("AWS_")}
    assert passed_on <= AWS_KEYS
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    for name in AWS_KEYS:
        monkeypatch.setenv(name, f"value of {name}")
    with restored_environment():
        hide_aws_keys()
        assert not AWS_KEYS & os.environ.keys()
        found = boto3.DEFAULT_SESSION.get_credentials()
        assert found.secret_key == "value of AWS_SECRET_ACCESS_KEY"
        assert found.token in ("value of AWS_SESSION_TOKEN", "value of AWS_SECURITY_TOKEN")
