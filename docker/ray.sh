#!/usr/bin/env bash
# Starts a node of the cluster, which asks every client for the token: ray.sh head | worker.
set -euo pipefail

: "${RAY_AUTH_TOKEN_PATH:?a file with the token of the cluster}"
[[ -s $RAY_AUTH_TOKEN_PATH ]] || {
    echo "the token file $RAY_AUTH_TOKEN_PATH must be readable and hold a token" >&2
    exit 1
}
export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0
role=${1:?head or worker}
shift

case $role in
head)
    # The bucket of the root, unless it exists.
    [[ -z ${BUCKET:-} ]] || python "$(dirname "$0")/make_bucket.py" "$BUCKET"
    # No trials here, so that the sweeps' drivers keep their CPU.
    exec ray start --head --block --num-cpus=0 --dashboard-host=0.0.0.0 "$@"
    ;;
worker)
    # For trials that share a GPU (docs/gpus.md, "Several trials on one GPU"):
    # nvidia-cuda-mps-control -d
    exec ray start --block --address="${RAY_HEAD:-head:6379}" "$@"
    ;;
*)
    echo "the first argument must be head or worker, got $role" >&2
    exit 2
    ;;
esac
