"""In-memory S3 server for tests, found by the environment variables of AWS."""

import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from mtcon_ray.data.objects import _open

BUCKET = "photos"


class ObjectStore:
    """Server with one bucket: the log of its requests, and the variables that name it.

    `fault` is called with the method and path of each request, from threads. It returns None for an
    answer, 503, "cut" to close the connection after a part of the body, or the seconds of a hang.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        self.fault: Callable[[str, str], str | float | None] = lambda method, path: None
        self._start("127.0.0.1", 0)
        host, port = self._server.get_host_and_port()
        url = f"http://{host}:{port}"
        self.variables = {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "canary-key",
            "AWS_SECRET_ACCESS_KEY": "canary-secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        session = boto3.Session("canary-key", "canary-secret", region_name="us-east-1")
        self._client = session.client("s3", endpoint_url=url)
        # moto keeps one state per process: empty the buckets of earlier servers.
        urllib.request.urlopen(f"{url}/moto-api/reset", data=b"").close()
        self._client.create_bucket(Bucket=BUCKET)

    def _start(self, host: str, port: int) -> None:
        self._server = ThreadedMotoServer(ip_address=host, port=port, verbose=False)
        self._server.start()
        self._server.get_host_and_port()  # waits for the start
        server: Any = self._server._server
        self._app, server.app = server.app, self._answer

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Any:
        request = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        self.requests.append(request)
        fault = self.fault(*request)
        if fault is None:
            return self._app(environ, start_response)
        if fault == 503:
            start_response("503 Slow Down", [])
            return [b""]
        if fault == "cut":
            environ["wsgi.input"].read(1000)
        else:
            time.sleep(float(fault))
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        return []

    def put(self, key: str, content: bytes) -> str:
        """Stores an object and returns its URL."""
        self._client.put_object(Bucket=BUCKET, Key=key, Body=content)
        return f"s3://{BUCKET}/{key}"

    def content(self, key: str) -> bytes:
        """Returns the content of an object."""
        return bytes(self._client.get_object(Bucket=BUCKET, Key=key)["Body"].read())

    def reads(self, key: str) -> int:
        """Returns the number of GET requests for an object."""
        return self.requests.count(("GET", f"/{BUCKET}/{key}"))

    @contextmanager
    def away(self) -> Iterator[None]:
        """Refuses connections; afterwards answers at the same address, with the same objects."""
        host, port = self._server.get_host_and_port()
        self.stop()
        try:
            yield
        finally:
            self._start(host, port)

    def names(self) -> list[str]:
        """Returns the names of all objects."""
        listed = self._client.list_objects_v2(Bucket=BUCKET)
        return [entry["Key"] for entry in listed.get("Contents", ())]

    def stop(self) -> None:
        """Stops the server."""
        server = self._server._server
        self._server.stop()
        assert server is not None
        server.server_close()  # moto leaves the port open, which then accepts and never answers


@contextmanager
def object_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """Yields a server that this process and its children find by their environment."""
    store = ObjectStore()
    try:
        for name, value in store.variables.items():
            monkeypatch.setenv(name, value)
        _open.cache_clear()
        yield store
    finally:
        _open.cache_clear()
        store.stop()
