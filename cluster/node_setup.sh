#!/bin/sh
# Makes ~/mtcon-env on a node from the copy of this checkout that `ray up` has put there: the
# versions of constraints.txt, as on every other node. Further arguments are packages to add.
set -eu
cd "$(dirname "$0")/.."
env=$HOME/mtcon-env
[ -x "$env/bin/python" ] || "${PYTHON:-python3.12}" -m venv "$env"
"$env/bin/python" -m pip install --quiet -c constraints.txt uv
"$env/bin/uv" pip install --quiet --python "$env/bin/python" -c constraints.txt -e . "$@"
