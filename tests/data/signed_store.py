"""S3 server for tests that verifies signatures and rights: other keys than its own are refused."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from moto.core import DEFAULT_ACCOUNT_ID
from moto.core.authorization import enable_iam_authentication
from moto.iam import iam_backends

from tests.data.object_store import ObjectStore, object_store

# Keys that may read and list, but neither write nor delete.
READER = {"AWS_ACCESS_KEY_ID": "reader-key", "AWS_SECRET_ACCESS_KEY": "reader-secret"}


@contextmanager
def signed_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """Yields a server that accepts only the keys of its `variables`, and READER for reading.

    A request without a signature gets moto's own error, HTTP status 500. Every moto server in this
    process verifies signatures until the end.
    """
    with object_store(monkeypatch) as store:
        iam = iam_backends[DEFAULT_ACCOUNT_ID]["aws"]
        writer, reader = (store.variables, ["s3:*"]), (READER, ["s3:Get*", "s3:List*", "s3:Head*"])
        for name, (keys, actions) in {"writer": writer, "reader": reader}.items():
            iam.create_user("us-east-1", name)
            rights = {"Effect": "Allow", "Action": actions, "Resource": "*"}
            policy = json.dumps({"Version": "2012-10-17", "Statement": [rights]})
            iam.put_user_policy(name, "rights", policy)
            created = iam.create_access_key(name)
            created.access_key_id = keys["AWS_ACCESS_KEY_ID"]
            created.secret_access_key = keys["AWS_SECRET_ACCESS_KEY"]
        with enable_iam_authentication():
            yield store
