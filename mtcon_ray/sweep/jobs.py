"""Sweeps as jobs of a Ray cluster: what is uploaded, how a job is named, followed and stopped.

Everything goes through Ray's Jobs API; there is no server of ours.
"""

import asyncio
import logging
import os
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ray._private.runtime_env.packaging import GCS_STORAGE_MAX_SIZE, _dir_travel
from ray.job_submission import JobDetails, JobStatus, JobSubmissionClient

from mtcon_ray.errors import MtconError, ResourceError, SweepError
from mtcon_ray.places import new_name, sweeps_folder
from mtcon_ray.tracking.server import masked

DEFAULT_ADDRESS = "http://127.0.0.1:8265"
# Ray's own 3 s would cut a checkpoint off.
STOP_SECONDS = 60
AGENT_SECONDS = 60
NUM_LARGEST = 5
RUNNING = (JobStatus.PENDING, JobStatus.RUNNING)


log = logging.getLogger(__name__)
# They tell of every step, and of every file that is ignored.
for chatty in (
    "ray.dashboard.modules.dashboard_sdk",
    "ray.dashboard.modules.job.sdk",
    "ray._private.runtime_env",
):
    logging.getLogger(chatty).setLevel(logging.WARNING)


class Upload(NamedTuple):
    """What Ray would send to the cluster of a working directory, before it is packed."""

    num_bytes: int
    num_files: int
    largest: tuple[tuple[str, int], ...]


class Job(NamedTuple):
    """One submission of a sweep."""

    id: str
    sweep: str
    attempt: int
    status: str
    start_ms: int | None
    end_ms: int | None


def measure_upload(folder: Path) -> Upload:
    """The folder's files less what .gitignore and .rayignore name, as Ray reads these."""
    sizes: dict[str, int] = {}

    def see(path: Path) -> None:
        if path.is_file():
            sizes[str(path.relative_to(folder))] = path.stat().st_size

    _dir_travel(folder, [], see, include_gitignore=True, logger=log)
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:NUM_LARGEST]
    return Upload(sum(sizes.values()), len(sizes), tuple(largest))


def check_upload(folder: Path, limit: int = GCS_STORAGE_MAX_SIZE) -> Upload:
    """Raises ResourceError naming the largest files where Ray would not take them."""
    upload = measure_upload(folder)
    if upload.num_bytes > limit:
        shown = "\n  ".join(f"{size / 1e6:8.1f} MB  {path}" for path, size in upload.largest)
        raise ResourceError(
            f"what is uploaded must be at most {limit / 1e6:.3g} MB, got "
            f"{upload.num_bytes / 1e6:.3g} MB in {upload.num_files:,} files of {folder}:\n"
            f"  {shown}\n"
            "name what the job does not need in .rayignore, and data by absolute paths"
        )
    return upload


class Jobs:
    """The sweeps' jobs of one cluster, by the address of its dashboard.

    Raises MtconError where nobody answers or the token is wrong.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        with self._answered():
            self._client = JobSubmissionClient(address)

    def submit(
        self,
        stem: str,
        command: list[str],
        *,
        working_dir: Path,
        root: Path,
        name: str | None = None,
        variables: dict[str, str] | None = None,
    ) -> Job:
        """Starts a sweep's next attempt: `command` with its name, resumed if it was there.

        Without a name a new `<stem>-<n>` is taken, which neither the cluster nor the root has.
        The driver runs on the cluster's head. Raises SweepError while the sweep is running.
        """
        known = self.known()
        name = name or self._new_name(stem, root, known)
        before = [job for job in known if job.sweep == name]
        if any(job.status in RUNNING for job in before):
            raise SweepError(
                f"sweep {name!r} must not be running to be submitted, got job {before[-1].id} that "
                f"is; follow it with `mtcon-ray logs {before[-1].id} -f`, or stop it first"
            )
        attempt = max((job.attempt for job in before), default=0) + 1
        resume = ["--resume"] if before or (sweeps_folder(root) / name).exists() else []
        with self._answered():
            job_id = self._submit_when_ready(
                entrypoint=shlex.join([*command, "--name", name, *resume]),
                submission_id=f"{name}-{attempt}",
                metadata={"sweep": name, "attempt": str(attempt)},
                runtime_env={
                    "working_dir": str(working_dir),
                    "env_vars": {
                        "RAY_JOB_STOP_WAIT_TIME_S": str(STOP_SECONDS),
                        **(variables or {}),
                    },
                },
                entrypoint_resources={"node:__internal_head__": 0.001},
            )
        return Job(job_id, name, attempt, JobStatus.PENDING, None, None)

    def known(self) -> list[Job]:
        """The cluster's jobs that are sweeps of ours, oldest first."""
        with self._answered():
            found = self._client.list_jobs()
        jobs = [job for details in found if (job := _job(details)) is not None]
        return sorted(jobs, key=lambda job: (job.start_ms or 0, job.attempt))

    def find(self, name: str) -> Job:
        """The job of this id, or a sweep's newest. Raises SweepError where there is none."""
        jobs = self.known()
        fitting = [job for job in jobs if job.id == name] or [j for j in jobs if j.sweep == name]
        if not fitting:
            known = ", ".join(job.id for job in jobs) or "none"
            raise SweepError(f"no job {name!r} at {self.address}; jobs: {known}")
        return fitting[-1]

    def logs(self, job_id: str) -> str:
        """What the job has printed so far."""
        with self._answered():
            return self._client.get_job_logs(job_id)

    def follow(self, job_id: str, write: Callable[[str], None]) -> int:
        """Passes on what the job prints until it ends; its exit code."""

        async def tail() -> None:
            async for text in self._client.tail_job_logs(job_id):
                write(text)

        with self._answered():
            asyncio.run(tail())
            details = self._client.get_job_info(job_id)
        if details.status == JobStatus.SUCCEEDED:
            return 0
        return details.driver_exit_code or 1

    def stop(self, job_id: str) -> None:
        """Asks the job to end as Ctrl-C would; it has STOP_SECONDS to save its checkpoints."""
        with self._answered():
            self._client.stop_job(job_id)

    def _submit_when_ready(self, **request: Any) -> str:
        """The id; a head that has just come up answers before its agent takes jobs."""
        deadline = time.monotonic() + AGENT_SECONDS
        while True:
            try:
                return self._client.submit_job(**request)
            except RuntimeError as error:
                if "No available agent" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(1)

    def _new_name(self, stem: str, root: Path, known: list[Job]) -> str:
        taken = {job.sweep for job in known}
        name = new_name(sweeps_folder(root), stem)
        number = int(name.rpartition("-")[2])
        while f"{stem}-{number}" in taken:
            number += 1
        return f"{stem}-{number}"

    @contextmanager
    def _answered(self) -> Iterator[None]:
        try:
            yield
        except ConnectionError as error:
            raise MtconError(
                f"no Ray cluster answers at {self.address}; start one as cluster/README.md says, "
                f"or name its dashboard with --address ({error})"
            ) from None
        except RuntimeError as error:
            text = str(error)
            if "401" in text or "403" in text or "oken" in text:
                raise MtconError(
                    f"the Ray cluster at {self.address} wants its token: set RAY_AUTH_MODE=token "
                    "and give the head's token in RAY_AUTH_TOKEN or ~/.ray/auth_token; "
                    "cluster/README.md says how"
                ) from None
            raise MtconError(f"the Ray cluster at {self.address} refused: {text}") from error


def check_variables(uri: str | None) -> dict[str, str]:
    """What a job is told of the tracking server.

    Raises MtconError for a URI with a password: a job's environment is shown in the dashboard.
    """
    if uri is None:
        return {}
    if masked(uri) != uri:
        raise MtconError(
            "MLFLOW_TRACKING_URI must hold no password to be passed to a job, whose environment "
            "the dashboard shows; set it where the cluster's head is started"
        )
    return {"MLFLOW_TRACKING_URI": uri}


def cluster_dashboard(address: str | None) -> str:
    """The dashboard's address: the one given, Ray's variable for it, or this machine's."""
    return address or os.environ.get("RAY_API_SERVER_ADDRESS") or DEFAULT_ADDRESS


def _job(details: JobDetails) -> Job | None:
    sweep = (details.metadata or {}).get("sweep")
    if sweep is None or details.submission_id is None:
        return None
    attempt = int((details.metadata or {})["attempt"])
    start, end = details.start_time, details.end_time
    return Job(details.submission_id, sweep, attempt, details.status, start, end)
