"""Makes the bucket that is named, unless it exists: `make_bucket.py NAME`.

Keys come from AWS_SHARED_CREDENTIALS_FILE, the address from MLFLOW_S3_ENDPOINT_URL.
"""

import os
import sys

import boto3
from botocore.exceptions import ClientError

THERE = {"BucketAlreadyOwnedByYou", "BucketAlreadyExists"}


def main() -> None:
    """Ask the store to make it."""
    store = boto3.client("s3", endpoint_url=os.environ["MLFLOW_S3_ENDPOINT_URL"])
    try:
        store.create_bucket(Bucket=sys.argv[1])
    except ClientError as error:
        if error.response["Error"]["Code"] not in THERE:
            raise


if __name__ == "__main__":
    main()
