"""Sweeps as jobs of a Ray cluster: naming, submission, logs and stopping.

All requests go to Ray's Jobs API; this package has no server of its own.
"""

import asyncio
import json
import os
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import ray
import requests
from ray.exceptions import AuthenticationError
from ray.job_submission import JobDetails, JobErrorType, JobStatus, JobSubmissionClient

from mtcon_ray.cluster.job_package import job_environment
from mtcon_ray.cluster.ray_private import (
    enable_token_if_present,
    quiet_job_client,
    server_version,
)
from mtcon_ray.errors import MtconError, SweepError, UserError
from mtcon_ray.paths import new_name, sweep_folder, sweeps_folder

DEFAULT_ADDRESS = "http://127.0.0.1:8265"
ADDRESS_VARIABLE = "RAY_API_SERVER_ADDRESS"
# Ray's default of 3 s is too short to write a checkpoint.
STOP_SECONDS = 60
# After STOP_SECONDS Ray kills the processes, and then reports the job as stopped.
STOPPED_SECONDS = STOP_SECONDS + 30
AGENT_SECONDS = 60
# The last lines of a long traceback name the error.
REASON_LINES = 8
INTERRUPTED = 130
RUNNING = (JobStatus.PENDING, JobStatus.RUNNING)

quiet_job_client()


class Job(NamedTuple):
    """One submitted job; `sweep` is empty and `attempt` 0 if `ray job submit` submitted it."""

    id: str
    sweep: str
    attempt: int
    status: str
    start_ms: int | None
    end_ms: int | None
    command: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    # None: the job uses the nodes' own environment.
    requirements: tuple[str, ...] | None = None

    @property
    def running(self) -> bool:
        """True if the job has not ended."""
        return self.status in RUNNING


class Jobs:
    """The jobs of one cluster, given the address of its dashboard.

    Raises MtconError if no cluster answers, UserError if the token is wrong or the cluster runs
    another version of Ray.
    """

    def __init__(self, address: str) -> None:
        self.address = checked_address(address)
        # The client prefers this variable to its argument.
        os.environ[ADDRESS_VARIABLE] = self.address
        enable_token_if_present()
        with self._answered():
            self._client = JobSubmissionClient(self.address)
        there = server_version(self._client)
        if there != ray.__version__:
            raise UserError(
                f"the cluster at {self.address} must run Ray {ray.__version__} as this environment "
                f"does, got {there}; install one constraints.txt on both"
            )

    def submit(
        self,
        stem: str,
        command: list[str],
        *,
        working_dir: Path,
        root: Path,
        name: str | None = None,
        variables: dict[str, str] | None = None,
        requirements: Sequence[str] | None = None,
    ) -> Job:
        """Submits `command` as the next attempt of a sweep, and returns the job.

        With a name, the job resumes the sweep of that name or starts it. Without one, the sweep
        gets a new name `<stem>-<n>`, which neither a job of the cluster nor the root has, as far
        as the root is visible from here; the job fails if the name exists where it runs. The driver
        runs on the cluster's head. If `requirements` is not None, every node gets this
        environment's versions and those packages.
        Raises SweepError while the sweep is running.
        """
        known = self.known()
        goes_on = ["--continue"] if name else []
        name = sweep_folder(root, name or self._new_name(stem, root, known)).name
        before = [job for job in known if job.sweep == name]
        running = next((job.id for job in before if job.running), None)
        if running:
            raise SweepError(
                f"sweep {name!r} must not be running to be submitted, got job {running} that "
                f"is; follow it with `mtcon-ray logs {running} -f`, or stop it first"
            )
        attempt = max((job.attempt for job in before), default=0) + 1
        metadata = {"sweep": name, "attempt": str(attempt), "command": shlex.join(command)}
        environment = {}
        if requirements is not None:
            metadata["requirements"] = json.dumps(requirements)
            environment = job_environment(list(requirements))
        with self._answered():
            job_id = self._submit_when_ready(
                entrypoint=shlex.join([*command, "--name", name, *goes_on]),
                submission_id=f"{name}-{attempt}",
                metadata=metadata,
                runtime_env={
                    **environment,
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
        """Returns the jobs that were submitted to the cluster, oldest first."""
        with self._answered():
            found = self._client.list_jobs()
        jobs = [_job(details) for details in found if details.submission_id is not None]
        return sorted(jobs, key=lambda job: (job.start_ms or 0, job.attempt))

    def find(self, name: str) -> Job:
        """Returns the job of this id, or a sweep's newest one. Raises SweepError without any."""
        jobs = self.known()
        fitting = [job for job in jobs if job.id == name] or [j for j in jobs if j.sweep == name]
        if not fitting:
            known = ", ".join(job.id for job in jobs) or "none"
            raise SweepError(f"no job {name!r} at {self.address}; jobs: {known}")
        return fitting[-1]

    def logs(self, job_id: str) -> str:
        """Returns the text that the job has printed so far."""
        with self._answered():
            return self._client.get_job_logs(job_id)

    def follow(
        self,
        job_id: str,
        write: Callable[[str], None],
        wait: Callable[[str, float, str], None] = lambda what, seconds, reason: None,
    ) -> int:
        """Passes the job's output to `write` until it ends; returns its exit code.

        The exit code of a stopped job is 130. Until the job runs, calls `wait` each second with the
        job's status, the seconds since its submission, and Ray's reason. Reconnects if the
        connection breaks. Raises MtconError with Ray's reason if the job's command was never
        started or its process was lost.
        """
        seen = 0
        self._wait_for_start(job_id, wait)

        async def tail() -> None:
            nonlocal seen
            place = 0
            async for text in self._client.tail_job_logs(job_id):
                write(text[max(0, seen - place) :])
                place += len(text)
                seen = max(seen, place)

        while True:
            try:
                asyncio.run(tail())
            except (RuntimeError, aiohttp.ClientError):
                time.sleep(1)  # the next request raises if the cluster is gone
            with self._answered():
                details = self._client.get_job_info(job_id)
            if details.status.is_terminal():
                write(self.logs(job_id)[seen:])
                break
        if details.status == JobStatus.SUCCEEDED:
            return 0
        if details.status == JobStatus.FAILED and details.driver_exit_code is None:
            raise MtconError(lost(job_id, details))
        return INTERRUPTED if details.status == JobStatus.STOPPED else details.driver_exit_code or 1

    def stop(self, job_id: str) -> bool:
        """Sends the job SIGTERM; it has STOP_SECONDS to save its checkpoints.

        Returns False if the job has ended already.
        """
        with self._answered():
            return self._client.stop_job(job_id)

    def wait_until_ended(self, job_id: str, limit: float = STOPPED_SECONDS) -> str:
        """Waits for the job's end; returns its status. Raises SweepError after `limit` seconds."""
        deadline = time.monotonic() + limit
        while True:
            with self._answered():
                status = self._client.get_job_status(job_id)
            if status.is_terminal():
                return str(status)
            if time.monotonic() > deadline:
                raise SweepError(
                    f"job {job_id} must end within {limit:.0f} s, got one that is still "
                    f"{status.lower()}; see `mtcon-ray logs {job_id}`, and stop it again"
                )
            time.sleep(0.5)

    def _wait_for_start(self, job_id: str, wait: Callable[[str, float, str], None]) -> None:
        while True:
            with self._answered():
                details = self._client.get_job_info(job_id)
            if details.status not in RUNNING:
                return
            seconds = time.time() - details.start_time / 1000 if details.start_time else 0.0
            pending = details.status == JobStatus.PENDING
            reason = details.message or "" if pending else ""
            wait(f"job {job_id} is {details.status.lower()}", max(0.0, seconds), reason)
            if not pending:
                return
            time.sleep(1)

    def _submit_when_ready(self, **request: Any) -> str:
        """Returns the job's id; retries while a head that has just started takes no jobs."""
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
        number = int(new_name(sweeps_folder(root), stem).rpartition("-")[2])
        while f"{stem}-{number}" in taken:
            number += 1
        return f"{stem}-{number}"

    @contextmanager
    def _answered(self) -> Iterator[None]:
        try:
            yield
        except AuthenticationError as error:
            raise UserError(
                f"the Ray cluster at {self.address} must be given its token, got "
                f"{str(error).partition(chr(10))[0]}; set RAY_AUTH_MODE=token and put the head's "
                "token into ~/.ray/auth_token or RAY_AUTH_TOKEN; cluster/README.md says how"
            ) from None
        except (ConnectionError, requests.ConnectionError, requests.Timeout):
            raise MtconError(
                f"no Ray cluster answers at {self.address}; start one as cluster/README.md says, "
                "or name its dashboard with --address"
            ) from None
        except (RuntimeError, requests.RequestException) as error:
            raise MtconError(f"the Ray cluster at {self.address} refused: {error}") from error


def cluster_dashboard(address: str | None) -> str:
    """Returns the dashboard's address: the one given, that of Ray's variable, or this machine's."""
    return address or os.environ.get(ADDRESS_VARIABLE) or DEFAULT_ADDRESS


def checked_address(address: str) -> str:
    """Returns the dashboard's URL, with http:// if no scheme is given.

    Raises UserError for other kinds of addresses, such as Ray's client port or the GCS.
    """
    url = (address if "://" in address else f"http://{address}").rstrip("/")
    if not url.startswith(("http://", "https://")) or address == "auto":
        raise UserError(
            f"--address must be the dashboard's, as http://head:8265, got {address!r}; jobs go "
            "neither through Ray's client port nor through its GCS"
        )
    return url


def lost(job_id: str, details: JobDetails) -> str:
    """Returns the error message for a job whose command has no exit code."""
    reason = "\n  ".join((details.message or "no reason").strip().splitlines()[-REASON_LINES:])
    if details.error_type == JobErrorType.RUNTIME_ENV_SETUP_FAILURE:
        return f"job {job_id} was never started, for its environment could not be made:\n  {reason}"
    return (
        f"job {job_id} ended without a word; what it did is kept, `mtcon-ray resume {job_id}` goes "
        f"on. Ray says:\n  {reason}"
    )


def _job(details: JobDetails) -> Job:
    metadata = details.metadata or {}
    variables = (details.runtime_env or {}).get("env_vars", {})
    asked = metadata.get("requirements")
    return Job(
        id=str(details.submission_id),
        sweep=metadata.get("sweep", ""),
        attempt=int(metadata.get("attempt", 0)),
        status=details.status,
        start_ms=details.start_time,
        end_ms=details.end_time,
        command=tuple(shlex.split(metadata.get("command", ""))),
        variables=tuple(variables.items()),
        requirements=tuple(json.loads(asked)) if asked else None,
    )
