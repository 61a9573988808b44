#!/usr/bin/env bash
# Starts the MLflow server of compose.yaml: PostgreSQL behind it, artifacts through it to S3.
# With arguments it runs those instead, with the same access: mlflow.sh mlflow db upgrade "$STORE".
set -euo pipefail

: "${POSTGRES_PASSWORD_FILE:?a file with the password of the database user}"
: "${AWS_SHARED_CREDENTIALS_FILE:?a file with the keys of the S3 store}"
: "${MLFLOW_S3_ENDPOINT_URL:?the address of the S3 store}"
database=${POSTGRES_ADDRESS:-postgres:5432}
bucket=${BUCKET:-mlflow}
port=${PORT:-5000}

# libpq takes a password from a file that nobody else reads, so that no address,
# no command line and no environment holds it.
private=$(mktemp -d -p "${PRIVATE:-${TMPDIR:-/tmp}}")
export PGPASSFILE=$private/pgpass
(umask 077 && printf '*:*:*:mlflow:%s\n' \
    "$(sed -e 's/[\\:]/\\&/g' "$POSTGRES_PASSWORD_FILE")" >"$PGPASSFILE")
export STORE=postgresql+psycopg://mlflow@$database/mlflow

export MLFLOW_DISABLE_TELEMETRY=true MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false
# Where MLflow finds the scheme proxied-s3.
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH=$here/mlflow_plugin${PYTHONPATH:+:$PYTHONPATH}
if (($#)); then
    exec "$@"
fi
AWS_ENDPOINT_URL=$MLFLOW_S3_ENDPOINT_URL python "$here/make_bucket.py" "$bucket"
# A sender that pauses for uvicorn's own 5 s would write into a connection that is being closed.
exec mlflow server --uvicorn-opts --timeout-keep-alive=75 \
    --backend-store-uri "$STORE" \
    --serve-artifacts --artifacts-destination "proxied-s3://$bucket" \
    --host "${HOST:-0.0.0.0}" --port "$port" --workers "${WORKERS:-4}" \
    --allowed-hosts "${ALLOWED_HOSTS:-mlflow:*,localhost:*,127.0.0.1:*}" \
    ${ALLOWED_ORIGINS:+--cors-allowed-origins "$ALLOWED_ORIGINS"}
