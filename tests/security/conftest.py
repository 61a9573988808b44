"""Fixtures of the job tests: a user with an empty home folder, and the user's cluster."""

from tests.cluster.conftest import head, home

__all__ = ["head", "home"]
