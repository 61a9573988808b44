"""A user with an empty home folder, and a cluster of theirs, as the tests of jobs have them."""

from tests.cluster.conftest import head, home

__all__ = ["head", "home"]
