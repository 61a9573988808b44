"""An MLflow server for measurements, with a single worker."""

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from cluster.try_autoscaling import free_ports


@contextmanager
def mlflow_server(store: str) -> Iterator[str]:
    """Runs an MLflow server on a free port of this machine and yields its address."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", store,
               "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]  # fmt: skip
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        address = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 120
        while not _answers(f"{address}/health"):
            assert time.monotonic() < deadline
            assert server.poll() is None
            time.sleep(0.2)
        yield address
    finally:
        server.terminate()
        server.wait(120)


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except OSError:
        return False
    return True
