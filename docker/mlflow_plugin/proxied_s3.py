"""MLflow's S3 store for a network that clients do not reach: `proxied-s3://BUCKET`.

Over its own one MLflow tells clients and browsers to fetch each file from the store itself, and
they wait for minutes for an address that they cannot reach.
"""

from botocore.exceptions import ClientError
from mlflow.entities import FileInfo
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INTERNAL_ERROR
from mlflow.store.artifact.artifact_repo import ArtifactRepository
from mlflow.store.artifact.s3_artifact_repo import BOTO_TO_MLFLOW_ERROR, S3ArtifactRepository


class ProxiedS3(ArtifactRepository):
    """The same store without the abilities by which it is offered to clients."""

    def __init__(
        self, artifact_uri: str, tracking_uri: str | None = None, registry_uri: str | None = None
    ) -> None:
        super().__init__(artifact_uri, tracking_uri, registry_uri)
        self._s3 = S3ArtifactRepository(artifact_uri.removeprefix("proxied-"))

    def log_artifact(self, local_file: str, artifact_path: str | None = None) -> None:
        """Send one file."""
        self._s3.log_artifact(local_file, artifact_path)

    def log_artifacts(self, local_dir: str, artifact_path: str | None = None) -> None:
        """Send a folder."""
        self._s3.log_artifacts(local_dir, artifact_path)

    def list_artifacts(self, path: str | None = None) -> list[FileInfo]:
        """Files and folders directly under a path."""
        found: list[FileInfo] = self._s3.list_artifacts(path)
        return found

    def delete_artifacts(self, artifact_path: str | None = None) -> None:
        """Remove what is under a path."""
        self._s3.delete_artifacts(artifact_path)

    def _download_file(self, remote_file_path: str, local_path: str) -> None:
        try:
            self._s3._download_file(remote_file_path, local_path)
        except ClientError as error:
            # Any other error is the server's own, for which clients try again for minutes.
            code = BOTO_TO_MLFLOW_ERROR.get(error.response["Error"]["Code"], INTERNAL_ERROR)
            raise MlflowException(f"{remote_file_path}: {error}", error_code=code) from error
