#!/usr/bin/env bash
# The whole workplace with one command; further arguments go to `docker compose up`.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
"$here/secrets.sh"
exec docker compose -f "$here/compose.yaml" up --build --detach --wait "$@"
