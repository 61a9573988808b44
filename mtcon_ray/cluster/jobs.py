"""Sweeps as jobs of a Ray cluster, by Ray's client: package, submission, logs and stopping."""

import json
import logging
import os
import shlex
import time
from collections.abc import Callable
from importlib.machinery import all_suffixes
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Any, TypeVar

from pydantic import AliasPath, BaseModel, Field

from mtcon_ray.base.paths import new_name, sweep_folder
from mtcon_ray.cluster.environment import TOKEN_HINT, has_token
from mtcon_ray.display.presentation import resume_line
from mtcon_ray.errors import MtconError, SweepError, UserError
from mtcon_ray.tracking.login import TRUST_VARIABLE, masked
from mtcon_ray.version import __version__

DEFAULT_ADDRESS = "http://127.0.0.1:8265"
ADDRESS_VARIABLE = "RAY_API_SERVER_ADDRESS"
# For a dashboard and its agent after their start.
START_SECONDS = 30
# The last lines of a long traceback name the error.
REASON_LINES = 8
INTERRUPTED = 130
START_HINT = "start one as cluster/README.md says, or name its dashboard with --address"
# The limit of Ray's dashboard for a zip, which stores the files uncompressed.
UPLOAD_HINT = "the upload may have 100 MB; name in .rayignore what the job does not need"
T = TypeVar("T")
# Ray's default of 3 s is too short to write a checkpoint.
STOP_SECONDS = 60
# Addresses of the tracking server and of object stores, never their keys.
PLACES = (
    "MLFLOW_TRACKING_URI", TRUST_VARIABLE, "MLFLOW_S3_ENDPOINT_URL", "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION",
)  # fmt: skip
# Patterns of .gitignore for modules, and for the folders in which Python looks for entry points.
CODE = [f"*{end}" for end in (*all_suffixes(), ".dist-info", ".egg-info")]
VERSIONS_VARIABLE = "MTCON_RAY_VERSIONS"
# A node copies gigabytes of packages, and may download more.
SETUP_SECONDS = 3600
# Packages that decide results or how processes communicate. constraints.txt pins the rest.
PACKAGES = ("torch", "torchvision", "numpy", "pandas", "pydantic", "optuna", "mlflow")


def in_job() -> bool:
    """Returns True in a job of `mtcon-ray submit`: its user did not type this process's command."""
    return VERSIONS_VARIABLE in os.environ


def way_on(folder: Path) -> str:
    """Returns the command to continue the sweep in this folder, in words."""
    return resume_line(folder.name, None if in_job() else folder.parents[1])


def job_variables(environ: dict[str, str], command: list[str]) -> dict[str, str]:
    """Returns the job's environment variables: addresses in PLACES and the required versions.

    No other variable is passed on: keys and passwords are set on the cluster. Raises UserError if a
    variable or the command holds a password, because the dashboard shows both.
    """
    found = {name: environ[name] for name in PLACES if environ.get(name)}
    for name, text in [*found.items(), *(("--set", word) for word in command)]:
        if masked(text) != text:
            raise UserError(
                f"{name} holds a password, {masked(text)!r}, and the dashboard shows a job's "
                "environment and command; set it where the cluster's head is started"
            )
    return {**found, VERSIONS_VARIABLE: json.dumps(versions())}


def minor(version: str) -> str:
    """Returns a version without its patch level: 2.60 of 2.60.1. Such versions work together."""
    return ".".join(version.split(".")[:2])


def versions() -> dict[str, str]:
    """Returns the installed versions of Python, Ray, this package and PACKAGES.

    The patch levels of Python and Ray are left out, because they belong to the cluster. Build tags
    such as "+cu128" are left out too: a machine without a GPU may submit.
    """
    return {
        "python": minor(python_version()),
        "ray": minor(version("ray")),
        "mtcon-ray": __version__,
        **{name: version(name).partition("+")[0] for name in PACKAGES},
    }


def job_environment(
    folder: Path, variables: dict[str, str], requirements: Path | None, *, has_code: bool
) -> dict[str, Any]:
    """Returns the job's Ray runtime environment. pip installs `requirements` on each node.

    Raises UserError if the file of requirements holds a password, because the dashboard shows it.
    Without `has_code` no importable file of the folder is uploaded. Ray puts a job's working
    directory on the import path of its processes, so a `numpy.py` in the folder of a stranger's
    spec would run on the cluster.
    """
    environment: dict[str, Any] = {
        "working_dir": str(folder),
        "excludes": [] if has_code else CODE,
        "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_SECONDS), **variables},
    }
    if requirements is not None:
        if masked(text := requirements.read_text()) != text:
            raise UserError(
                f"{requirements} holds a password, and the dashboard shows its lines; set the "
                "password in pip's settings on the nodes"
            )
        environment["pip"] = str(requirements)
        environment["config"] = {"setup_timeout_seconds": SETUP_SECONDS}
    return environment


def check_versions() -> None:
    """Raises UserError in a job if the versions here differ from the submitting environment."""
    wanted, here = json.loads(os.environ.get(VERSIONS_VARIABLE) or "{}"), versions()
    if wrong := [f"{n} {here.get(n)} (you: {v})" for n, v in wanted.items() if here.get(n) != v]:
        raise UserError(
            f"the cluster's versions differ from yours: it has {', '.join(wrong)}; install one "
            "constraints.txt and one Python on both"
        )


class Job(BaseModel):
    """A submitted job, as Ray describes it. `sweep` is empty if another program submitted it."""

    id: str = Field(validation_alias="submission_id")
    sweep: str = Field("", validation_alias=AliasPath("metadata", "sweep"))
    status: str
    start_ms: int | None = Field(None, validation_alias="start_time")
    end_ms: int | None = Field(None, validation_alias="end_time")
    message: str | None = None
    exit_code: int | None = Field(None, validation_alias="driver_exit_code")

    @property
    def running(self) -> bool:
        """True if the job has not ended."""
        return self.status in ("PENDING", "RUNNING")


class Jobs:
    """The jobs of a cluster, given the address of its dashboard.

    None means the address in RAY_API_SERVER_ADDRESS, else this machine. If `patient`, waits for a
    dashboard that does not answer yet. Raises MtconError if no cluster answers, UserError if the
    token is wrong.
    """

    def __init__(self, address: str | None, *, patient: bool = False) -> None:
        if has_token():
            # Otherwise Ray's client sends no token. Ray reads the variable when it is imported.
            os.environ.setdefault("RAY_AUTH_MODE", "token")
        from ray.job_submission import JobSubmissionClient

        address = address or os.environ.get(ADDRESS_VARIABLE) or DEFAULT_ADDRESS
        self.address = (address if "://" in address else f"http://{address}").rstrip("/")
        if not self.address.startswith("http"):
            raise UserError(f"--address must be http://HEAD:8265, the dashboard's, got {address!r}")
        # The client prefers this variable to its argument.
        os.environ[ADDRESS_VARIABLE] = self.address
        again, seconds = "Failed to connect", START_SECONDS if patient else 0
        self._client = self._ask(lambda: retried(JobSubmissionClient, seconds, again))

    def submit(
        self, stem: str, command: list[str], *, name: str | None, root: Path, env: dict[str, Any]
    ) -> Job:
        """Submits `command` as the next job `<sweep>-<n>` of a sweep, and returns the job.

        With a name, the job resumes the sweep of this name or starts it. Without a name, the sweep
        gets a new name `<stem>-<n>`, unused by the jobs of the cluster and, as far as the root is
        visible from here, in the root. The job fails if the name exists on its machine. The driver
        runs on the cluster's head, in this runtime environment. Raises SweepError while the sweep
        is running.
        """
        known = self.known()
        taken = {job.sweep for job in known}
        goes_on = ["--continue"] if name else []
        name = sweep_folder(root, name or new_name(root, stem, taken)).name
        before = [job for job in known if job.sweep == name]
        if running := next((job.id for job in before if job.running), None):
            raise SweepError(
                f"sweep {name!r} is already running as job {running}; follow it with "
                f"`mtcon-ray logs {running} -f`, or stop it first"
            )
        job_id = f"{name}-{len(before) + 1}"

        def submit() -> str:
            return self._client.submit_job(
                entrypoint=shlex.join([*command, "--name", name, *goes_on]),
                submission_id=job_id,
                metadata={"sweep": name},
                runtime_env=env,
                entrypoint_resources={"node:__internal_head__": 0.001},
            )

        self._ask(lambda: retried(submit, START_SECONDS, "No available agent"), UPLOAD_HINT)
        return self.job(job_id)

    def known(self) -> list[Job]:
        """Returns the submitted jobs of the cluster, oldest first."""
        found = self._ask(self._client.list_jobs)
        jobs = [Job.model_validate(vars(each)) for each in found if each.submission_id]
        return sorted(jobs, key=lambda job: job.start_ms or 0)

    def find(self, name: str) -> Job:
        """Returns the job of this id, or a sweep's newest job. Raises SweepError without any."""
        jobs = self.known()
        fitting = [job for job in jobs if job.id == name] or [j for j in jobs if j.sweep == name]
        if not fitting:
            known = ", ".join(job.id for job in jobs) or "none"
            raise SweepError(f"no job {name!r} at {self.address}; jobs: {known}")
        return fitting[-1]

    def job(self, job_id: str) -> Job:
        """Returns the job of this id as it is now."""
        return Job.model_validate(vars(self._ask(lambda: self._client.get_job_info(job_id))))

    def logs(self, job_id: str) -> str:
        """Returns the text printed by the job so far."""
        return self._ask(lambda: self._client.get_job_logs(job_id))

    def follow(self, job_id: str, write: Callable[[str], None]) -> int:
        """Passes the job's output to `write` until the job ends. Returns its exit code.

        The exit code of a stopped job is 130. Raises MtconError with Ray's reason if the job has no
        exit code.
        """
        seen = 0
        while True:
            job, text = self.job(job_id), self.logs(job_id)
            write(text[seen:])
            seen = len(text)
            if not job.running:
                break
            time.sleep(1)
        if job.status == "FAILED" and job.exit_code is None:
            reason = "\n  ".join((job.message or "no reason").strip().splitlines()[-REASON_LINES:])
            raise MtconError(
                f"job {job_id} ended without an exit code; to continue: "
                f"{resume_line(job.sweep or 'NAME', None)}. Ray says:\n  {reason}"
            )
        return {"SUCCEEDED": 0, "STOPPED": INTERRUPTED}.get(job.status, job.exit_code or 1)

    def stop(self, job_id: str) -> str:
        """Sends the job SIGTERM and waits for its end. Returns the job's status.

        The job has STOP_SECONDS to save its checkpoints, then Ray kills it.
        """
        self._ask(lambda: self._client.stop_job(job_id))
        deadline = time.monotonic() + STOP_SECONDS + 30
        while (job := self.job(job_id)).running:
            if time.monotonic() > deadline:
                raise SweepError(
                    f"job {job_id} is still running; see `mtcon-ray logs {job_id}`, stop it again"
                )
            time.sleep(0.5)
        return job.status

    def _ask(self, call: Callable[[], T], hint: str = START_HINT) -> T:
        """Returns the client's answer. Hides its log lines and converts its errors to ours."""
        from ray.exceptions import AuthenticationError
        from requests.exceptions import InvalidHeader

        before = logging.root.manager.disable
        logging.disable(logging.WARNING)
        try:
            return call()
        except (AuthenticationError, InvalidHeader) as error:
            reason = str(error).partition("\n")[0]
            if isinstance(error, InvalidHeader):  # its text is the token
                reason = "the token must be one line"
            text = f"the Ray cluster at {self.address} refused: {reason}; {TOKEN_HINT}"
            raise UserError(text) from None
        except (OSError, RuntimeError, ValueError, LookupError, TypeError) as error:
            if isinstance(error, OSError) and error.filename:  # of the uploaded folder
                raise
            text = f"no Ray cluster takes jobs at {self.address}: {error}; {hint}"
            raise MtconError(text) from error
        finally:
            logging.disable(before)


def retried(call: Callable[[], T], seconds: float, text: str = "") -> T:
    """Repeats a call for this time while it fails with this text, as right after a start."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return call()
        except (OSError, RuntimeError) as error:
            if text not in str(error) or time.monotonic() >= deadline:
                raise
        time.sleep(0.5)
