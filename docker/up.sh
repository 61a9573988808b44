#!/usr/bin/env bash
# The whole stack with one command; further arguments go to `docker compose up`.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
"$here/secrets.sh"
# COMPOSE_FILE adds files, such as compose.gpu.yaml.
export COMPOSE_FILE=${COMPOSE_FILE:-$here/compose.yaml}
status=0
docker compose up --build --detach --wait "$@" || status=$?
if ((status)); then
    echo "the stack did not come up whole; where containers started," \
        "\`docker compose -f '$here/compose.yaml' logs --tail=30\` says why" >&2
fi
exit "$status"
