"""The `resources`, `tracking` and `storage` sections, which do not change a trial's result."""

import re
from typing import Literal, Self
from urllib.parse import unquote

from pydantic import Field, model_validator

from mtcon_ray.base.registry import Count, PathOrUrl, Spec
from mtcon_ray.base.status import Status

# A password or a token in the authority part of a URI, or a secret in its query. A database's URI
# may have a plain user name. A client may take a backslash for the end of the host's name.
SECRET_IN_URI = (
    r"(?i)://[^/\s]*:[^\s]+@|^https?:[^?#]*@|\\"
    r"|[?&;](?!ssl_?key)[^=&;]*(pass|pwd|token|secret|credential|key|auth|jwt|sas|sig)[^=&;]*="
)


class ResourcesSpec(Spec):
    """Resources of a trial in the cluster."""

    workers: int | tuple[int, int] = Field(
        1, description="processes, or [least, most] if elastic. Each must divide train.batch_size"
    )
    cpus: int = Field(1, ge=1, le=4096, description="per worker, also torch's threads")
    gpus: float = Field(0, ge=0, le=1024, description="per worker. A GPU is shared if below 1")

    @property
    def worker_range(self) -> tuple[int, int]:
        """Smallest and largest number of workers of a trial."""
        return (self.workers, self.workers) if isinstance(self.workers, int) else self.workers

    @property
    def gpu_share(self) -> float:
        """Fraction of a GPU's memory available to each worker, 1 without a GPU."""
        return min(1.0, self.gpus or 1.0)

    @model_validator(mode="after")
    def _counts(self) -> Self:
        low, high = self.worker_range
        if not 1 <= low <= high <= 4096:
            raise ValueError(f"workers must satisfy 1 <= least <= most <= 4096, got {self.workers}")
        if (self.gpus > 1 or high > 1) and self.gpus != int(self.gpus):
            raise ValueError(f"gpus must be whole above 1 or with several workers, got {self.gpus}")
        return self


class TrackingSpec(Spec):
    """MLflow server and experiment in which runs are recorded."""

    uri: str | None = Field(
        None, description="MLflow server. null: MLFLOW_TRACKING_URI, else SQLite under the root"
    )
    experiment: str = Field("mtcon-ray", min_length=1, max_length=250)
    offline: bool = Field(False, description="send no events to MLflow until `audit --repair`")
    checkpoints: Literal["none", "kept", "all"] = Field(
        "kept",
        description="trials with networks and predictions as artifacts: no trial, finished trials "
        "(with storage.keep the kept trials, when the sweep has ended), or all probed trials",
    )

    system_metrics: bool = Field(True, description="record memory of process and GPU at each epoch")

    def sends_files_of(self, status: Status) -> bool:
        """Returns True if the files of a trial with this final status become artifacts."""
        if self.checkpoints == "all":
            return status.is_final
        return self.checkpoints == "kept" and status is Status.FINISHED

    @model_validator(mode="after")
    def _no_secrets(self) -> Self:
        if self.uri and re.search(SECRET_IN_URI, unquote(self.uri)):
            raise ValueError(
                "tracking.uri must hold no password and no token, because specs are logged; give "
                "it in MLFLOW_TRACKING_PASSWORD (with MLFLOW_TRACKING_USERNAME) or "
                "MLFLOW_TRACKING_TOKEN, or the whole URI in MLFLOW_TRACKING_URI"
            )
        return self


class StorageSpec(Spec):
    """Places of written files, and the choice of files to keep."""

    root: PathOrUrl | None = Field(
        None,
        description="absolute folder that all nodes share, or s3:// or gs:// URL. null: "
        "MTCON_RAY_ROOT, else ~/mtcon-ray",
    )
    local: str | None = Field(
        None,
        pattern=r"^(/|~/)",
        description="for a root with a URL: absolute folder on each node's own disk, for data and "
        "for files before their upload. null: ~/.cache/mtcon-ray",
    )
    keep: Count | None = Field(
        None, description="best trials with networks kept on disk. Others lose theirs. null: all"
    )
