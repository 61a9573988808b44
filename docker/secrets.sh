#!/usr/bin/env bash
# Makes the secrets of compose.yaml in a folder (docker/secrets by default); keeps what is there.
set -euo pipefail

folder=${1:-$(dirname "$0")/secrets}
# Nobody else enters the folder; in it the files stay readable, since a container's user is not you.
mkdir -p "$folder"
chmod 700 "$folder"
umask 022

random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
make() { # NAME CONTENT: in one step, and never over a secret that is in use
    [[ -e $folder/$1 ]] || {
        printf '%s' "$2" >"$folder/.new" && mv "$folder/.new" "$folder/$1"
    }
}

make ray_token "$(random)"
make postgres_password "$(random)"
# Each key twice: as the server reads it, and as its client does. It opens one bucket.
if [[ ! -e $folder/s3_server.json || ! -e $folder/s3_mlflow || ! -e $folder/s3_nodes ]]; then
    rm -f "$folder"/s3_*
    identities=()
    for client in mlflow:mlflow nodes:mtcon-ray; do
        access=$(random) secret=$(random)
        make "s3_${client%:*}" "[default]
aws_access_key_id = $access
aws_secret_access_key = $secret
"
        identities+=("{\"name\": \"${client%:*}\", \"actions\": [\"Admin:${client#*:}\"], \
            \"credentials\": [{\"accessKey\": \"$access\", \"secretKey\": \"$secret\"}]}")
    done
    make s3_server.json "{\"identities\": [${identities[0]}, ${identities[1]}]}"
fi
