"""Fixtures: a user with an empty home folder, and the user's cluster, bucket and MLflow."""

from tests.cluster.conftest import bucket, home
from tests.tracking.conftest import root, server

__all__ = ["bucket", "home", "root", "server"]
