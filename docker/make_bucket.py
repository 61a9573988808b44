"""Makes the bucket that is named, unless it exists: `make_bucket.py NAME`.

Keys come from AWS_SHARED_CREDENTIALS_FILE, the address from AWS_ENDPOINT_URL.
"""

import sys

from pyarrow.fs import FileSystem


def main() -> None:
    """Ask the store to make it."""
    name = sys.argv[1]
    store, _ = FileSystem.from_uri(f"s3://{name}?allow_bucket_creation=true")
    store.create_dir(name)


if __name__ == "__main__":
    main()
