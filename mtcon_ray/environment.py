"""Environment variables of this process, which libraries change while they run."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def restored_environment() -> Iterator[None]:
    """Gives environment variables the values that they had before."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
