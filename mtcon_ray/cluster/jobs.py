"""Sweeps as jobs of a Ray cluster: naming, submission, logs and stopping.

All requests go to Ray's Jobs API; this package has no server of its own. Only a submission needs
Ray's client, which packs the files. The rest is plain HTTP, because Ray takes seconds to import.
"""

import asyncio
import json
import os
import re
import shlex
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from http.client import HTTPException
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Annotated, Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from pydantic import AliasPath, BaseModel, BeforeValidator, Field, Json

from mtcon_ray.errors import MtconError, SweepError, UserError
from mtcon_ray.paths import new_name, sweep_folder

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
Words = Annotated[list[str], BeforeValidator(shlex.split)]


class Job(BaseModel):
    """One submitted job; `sweep` is empty and `attempt` 0 if `ray job submit` submitted it.

    It is read from the Jobs API, whose field `metadata` has what `Jobs.submit` stored there.
    """

    id: str = Field(validation_alias="submission_id")
    sweep: str = Field("", validation_alias=AliasPath("metadata", "sweep"))
    attempt: int = Field(0, validation_alias=AliasPath("metadata", "attempt"))
    command: Words = Field([], validation_alias=AliasPath("metadata", "command"))
    variables: dict[str, str] = Field({}, validation_alias=AliasPath("runtime_env", "env_vars"))
    # None: the job uses the nodes' own environment.
    requirements: Json[list[str]] | None = Field(
        None, validation_alias=AliasPath("metadata", "requirements")
    )
    status: str
    start_ms: int | None = Field(validation_alias="start_time")
    end_ms: int | None = Field(validation_alias="end_time")
    # Ray's reason for the status, and its kind of error.
    message: str | None
    error_type: str | None
    exit_code: int | None = Field(validation_alias="driver_exit_code")

    @property
    def running(self) -> bool:
        """True if the job has not ended."""
        return self.status in ("PENDING", "RUNNING")


class Jobs:
    """The jobs of one cluster, given the address of its dashboard.

    Raises MtconError if no cluster answers, UserError if the token is wrong or the cluster runs
    another minor version of Ray.
    """

    def __init__(self, address: str) -> None:
        self.address = checked_address(address)
        self._headers = token_header()
        here, there = version("ray"), self._ask("version")["ray_version"]
        if minor(there) != minor(here):
            raise UserError(
                f"the cluster at {self.address} must run a Ray {minor(here)} as this environment "
                f"does ({here}), got {there}; install one constraints.txt on both"
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
        from mtcon_ray.cluster.job_package import job_environment

        known = self.known()
        goes_on = ["--continue"] if name else []
        name = sweep_folder(root, name or _new_name(stem, root, known)).name
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
        job_id = self._submit_when_ready(
            entrypoint=shlex.join([*command, "--name", name, *goes_on]),
            submission_id=f"{name}-{attempt}",
            metadata=metadata,
            runtime_env={
                **environment,
                "working_dir": str(working_dir),
                "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_SECONDS), **(variables or {})},
            },
            entrypoint_resources={"node:__internal_head__": 0.001},
        )
        return self._job(job_id)

    def known(self) -> list[Job]:
        """Returns the jobs that were submitted to the cluster, oldest first."""
        found = [details for details in self._ask("jobs/") if details["submission_id"]]
        jobs = map(Job.model_validate, found)
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
        return str(self._ask(f"jobs/{job_id}/logs")["logs"])

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
        import aiohttp

        seen = 0

        async def tail() -> None:
            nonlocal seen
            place = 0  # each connection gets the log from its beginning
            url = f"{self.address}/api/jobs/{job_id}/logs/tail"
            async with (
                aiohttp.ClientSession(headers=self._headers) as session,
                session.ws_connect(url) as connection,
            ):
                async for message in connection:
                    if message.type is aiohttp.WSMsgType.TEXT:
                        write(message.data[max(0, seen - place) :])
                        place += len(message.data)
                        seen = max(seen, place)

        def ask() -> Job:
            try:
                return self._job(job_id)
            except MtconError as error:
                name = job.sweep or "NAME"
                again = f"`mtcon-ray submit` with --name {name} continues its sweep"
                raise MtconError(f"{job_id} cannot be followed: {error}; {again}") from error

        job = self._job(job_id)
        while job.running:
            seconds = max(0.0, time.time() - job.start_ms / 1000) if job.start_ms else 0.0
            reason = (job.message or "") if job.status == "PENDING" else ""
            if not seen:
                wait(f"job {job_id} is {job.status.lower()}", seconds, reason)
            if job.status == "RUNNING":
                with suppress(aiohttp.ClientError):  # `ask` raises if the cluster is gone
                    asyncio.run(tail())
            job = ask()
            if job.running:
                time.sleep(1)
        write(self.logs(job_id)[seen:])
        if job.status == "FAILED" and job.exit_code is None:
            raise MtconError(lost(job))
        return {"SUCCEEDED": 0, "STOPPED": INTERRUPTED}.get(job.status, job.exit_code or 1)

    def stop(self, job_id: str) -> bool:
        """Sends the job SIGTERM; it has STOP_SECONDS to save its checkpoints.

        Returns False if the job has ended already.
        """
        return bool(self._ask(f"jobs/{job_id}/stop", "POST")["stopped"])

    def wait_until_ended(self, job_id: str, limit: float = STOPPED_SECONDS) -> str:
        """Waits for the job's end; returns its status. Raises SweepError after `limit` seconds."""
        deadline = time.monotonic() + limit
        while (job := self._job(job_id)).running:
            if time.monotonic() > deadline:
                raise SweepError(
                    f"job {job_id} must end within {limit:.0f} s, got one that is still "
                    f"{job.status.lower()}; see `mtcon-ray logs {job_id}`, and stop it again"
                )
            time.sleep(0.5)
        return job.status

    def _job(self, job_id: str) -> Job:
        return Job.model_validate(self._ask(f"jobs/{job_id}"))

    def _submit_when_ready(self, **request: Any) -> str:
        """Returns the job's id; retries while a head that has just started takes no jobs."""
        from ray.job_submission import JobSubmissionClient

        from mtcon_ray.cluster.ray_private import quiet_job_client

        quiet_job_client()
        # The client prefers this variable to its argument.
        os.environ[ADDRESS_VARIABLE] = self.address
        deadline = time.monotonic() + AGENT_SECONDS
        while True:
            try:
                client = JobSubmissionClient(self.address, headers=dict(self._headers))
                return client.submit_job(**request)
            except (RuntimeError, OSError) as error:
                if "No available agent" not in str(error) or time.monotonic() > deadline:
                    raise self._refused(error) from error
                time.sleep(1)

    def _ask(self, path: str, method: str = "GET") -> Any:
        """Returns the answer of the Jobs API to a request, from JSON."""
        request = Request(f"{self.address}/api/{path}", method=method)
        # A redirection to another server must not carry the token there.
        for name, value in self._headers.items():
            request.add_unredirected_header(name, value)
        try:
            with urlopen(request) as answer:
                return json.load(answer)
        except HTTPError as error:
            with error:
                said = f"{error.code} {error.read().decode(errors='replace')}"
            if error.code not in (401, 403):
                raise self._refused(said) from None
            raise UserError(
                f"the Ray cluster at {self.address} must be given its token, got {said}; set "
                "RAY_AUTH_MODE=token and put the head's token into ~/.ray/auth_token or "
                "RAY_AUTH_TOKEN; cluster/README.md says how"
            ) from None
        except OSError:
            raise MtconError(
                f"no Ray cluster answers at {self.address}; start one as cluster/README.md says, "
                "or name its dashboard with --address"
            ) from None
        except (HTTPException, ValueError) as error:
            raise self._refused(error) from error

    def _refused(self, reason: object) -> MtconError:
        return MtconError(f"the Ray cluster at {self.address} refused: {reason}")


def minor(version: str) -> str:
    """Returns a version without its patch level: 2.60 of 2.60.1. Such versions work together."""
    return ".".join(version.split(".")[:2])


def cluster_dashboard(address: str | None) -> str:
    """Returns the dashboard's address: the one given, that of Ray's variable, or this machine's."""
    return address or os.environ.get(ADDRESS_VARIABLE) or DEFAULT_ADDRESS


def checked_address(address: str) -> str:
    """Returns the dashboard's URL, with http:// if no scheme is given.

    Raises UserError for other kinds of addresses, such as Ray's client port or the GCS.
    """
    url = address if "://" in address or address == "auto" else f"http://{address}"
    with suppress(ValueError):  # of a bracket that is not closed, or a port that is no number
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return url.rstrip("/")
    raise UserError(
        f"--address must be the dashboard's, as http://head:8265, got {url!r}; jobs go "
        "neither through Ray's client port nor through its GCS"
    )


def token_header() -> dict[str, str]:
    """Returns the HTTP header with the cluster's token; {} without a token.

    Reads the token where Ray reads it. Ray's client sends it only with RAY_AUTH_MODE=token; here
    it is sent unless that variable has another value. Raises UserError for a token that no HTTP
    header can hold, without showing it.
    """
    if os.environ.get("RAY_AUTH_MODE", "token").lower() != "token":
        return {}
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    given = os.environ.get("RAY_AUTH_TOKEN")
    token = given or (path.read_text("utf-8", errors="replace") if path.is_file() else "")
    token = token.strip()
    if not re.fullmatch("[ -~]*", token):
        raise UserError(
            f"the cluster's token in {'RAY_AUTH_TOKEN' if given else path} must be one line of "
            "printable ASCII, got other characters; put there what `ray get-auth-token` prints on "
            "the head"
        )
    return {"Authorization": f"Bearer {token}"} if token else {}


def lost(job: Job) -> str:
    """Returns the error message for a job whose command has no exit code."""
    reason = "\n  ".join((job.message or "no reason").strip().splitlines()[-REASON_LINES:])
    if job.error_type == "RUNTIME_ENV_SETUP_FAILURE":
        return f"job {job.id} was never started, for its environment could not be made:\n  {reason}"
    return (
        f"job {job.id} ended without a word; what it did is kept, `mtcon-ray resume {job.id}` goes "
        f"on. Ray says:\n  {reason}"
    )


def _new_name(stem: str, root: Path, known: list[Job]) -> str:
    """Returns the first `<stem>-<n>` after those under the root that no job of the cluster has."""
    first = int(new_name(root, stem).rpartition("-")[2])
    taken = {job.sweep for job in known}
    return next(name for n in count(first) if (name := f"{stem}-{n}") not in taken)
