#!/bin/sh
# A sweep on a cluster of this machine whose workers come when trials wait, are lost, and go.
# Takes two to three minutes, needs nothing but the environment that `make .venv/ready` or the
# README's first command makes, and removes what it started. `--help` says more.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
python=$here/.venv/bin/python
[ -x "$python" ] || python=python3
cd "$here"
PYTHONPATH=$here exec "$python" cluster/try_autoscaling.py "$@"
