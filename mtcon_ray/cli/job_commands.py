"""Commands for a cluster: submit, resume, jobs, logs, stop."""

import json
import os
import time
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mtcon_ray import paths, plugins
from mtcon_ray.cli import options
from mtcon_ray.cli.follow import Follower
from mtcon_ray.cli.run_commands import RETRY_FAILED, name_option, retry_option, run
from mtcon_ray.cli.terminal import Terminal, say
from mtcon_ray.display.tables import Table
from mtcon_ray.errors import MtconError, SpecError, SweepError, nearest
from mtcon_ray.presentation import NOTHING, duration_text, printable
from mtcon_ray.tracking.login import URI_VARIABLE
from mtcon_ray.tracking.mlflow_server import ui_command

if TYPE_CHECKING:
    from mtcon_ray.cluster.jobs import Jobs
    from mtcon_ray.spec import RunSpec

QUIET = "-q"
DASHBOARD_SECONDS = 30  # for a dashboard on this machine to start
address_option = click.option(
    "--address", metavar="URL",
    help="The cluster's dashboard.  [default: RAY_API_SERVER_ADDRESS, else http://127.0.0.1:8265]",
)  # fmt: skip
follow_option = click.option(
    "--no-follow", is_flag=True, help="Return at once; `logs -f` follows the job later."
)
job_argument = click.argument("job")
job_or_url = click.argument("job", metavar="JOB|URL")


@click.command()
@click.argument("target", metavar="SPEC|SCRIPT", type=click.Path(path_type=Path))
@options.overrides
@name_option
@options.root_option("storage.root, else ~/mtcon-ray, on the cluster")
@address_option
@follow_option
@options.trust_tracking
@click.option(
    "--install",
    is_flag=True,
    help="Install this package and its dependencies on every node by pip, in the versions of this "
    "machine; without it, different versions are refused.",
)
@click.option(
    "--requirements",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Your own packages to install too, one per line; implies --install.",
)
def submit(
    target: Path,
    overrides: tuple[str, ...],
    name: str | None,
    root: str | None,
    address: str | None,
    no_follow: bool,
    install: bool,
    requirements: Path | None,
) -> int:
    """Run a sweep as a job of a Ray cluster and follow it.

    With --name a stopped one is resumed.
    The job's lines are shown as `sweep` prints them in a log.
    The current folder, which must contain SPEC, is uploaded without the files that .gitignore and
    .rayignore name. Modules are uploaded with a SCRIPT or --allow-plugins only.
    Everything is written on the cluster: below --root, else storage.root, else ~/mtcon-ray there.
    A SCRIPT passes its arguments to mtcon_ray, as experiments/sweep_*.py do.
    """
    from mtcon_ray.cluster.job_package import read_requirements

    packages = read_requirements(requirements) if requirements else [] if install else None
    return _submit(
        target, overrides, name, root, address,
        follow=not no_follow, environ=dict(os.environ), requirements=packages,
    )  # fmt: skip


@click.command()
@job_or_url
@options.overrides
@retry_option
@address_option
@options.root_folder
@follow_option
@options.trust_tracking
def resume(
    job: str,
    overrides: tuple[str, ...],
    retry_failed: bool,
    address: str | None,
    root: Path,
    no_follow: bool,
) -> int:
    """Resume a sweep by its name, or a JOB that has ended.

    A sweep of this machine continues here, with the spec that is recorded in its folder. A
    submitted one continues as another job: spec, changes, tracking and installed packages are those
    of its last job, and the current folder is uploaded, which must contain the spec at the same
    path as for `submit`. --set search.num_trials=N adds trials.
    With the URL of a mirrored sweep (storage.mirror), the sweep is downloaded to the root, unless
    it is there, and continues here.
    """
    from mtcon_ray.results import was_submitted  # imports pydantic

    is_url = "://" in job
    folder = paths.sweeps_folder(root) / job.removeprefix("sweeps/")
    if is_url:
        folder = _restored(job, root, address)
    is_here = address is None and (folder / paths.SPEC_FILE).exists()
    if is_url or (is_here and not was_submitted(folder)):

        def load() -> tuple["RunSpec", Path, bool]:
            from mtcon_ray.recorded import load_recorded

            return load_recorded(folder / paths.SPEC_FILE, overrides), folder.parents[1], True

        return run(load, folder.name, retry_failed=retry_failed)
    try:
        last = _jobs(address).find(job)
    except MtconError as error:
        if is_here:
            raise SweepError(
                f"a job of a cluster began sweep {job!r}, and no cluster knows it: {error}; "
                f"`mtcon-ray submit` with --name {job} continues it on another cluster"
            ) from error
        if address is not None:
            raise
        # Most likely a misspelt name of a sweep of this machine, which is not in the cluster.
        known = [entry.name for entry in paths.list_folders(folder.parent)]
        raise SweepError(
            f"no sweep {job!r} under {folder.parents[1]}{nearest(job, known)}; as a job: {error}"
        ) from error
    if not last.command:
        raise SweepError(
            f"{job!r} must be a job of `mtcon-ray submit` to be resumed, got one that is none; "
            "repeat its command with --name NAME --resume"
        )
    target = Path(last.command[2] if last.command[1] != "-m" else last.command[4])
    given = list(pairwise(last.command))
    if options.ALLOW_PLUGINS in last.command:
        plugins.allow()
    settings = tuple(word for before, word in given if before == "--set")
    return _submit(
        target, (*settings, *overrides), last.sweep, dict(given).get("--root"), address,
        follow=not no_follow, environ=last.variables | os.environ, requirements=last.requirements,
        retry_failed=retry_failed,
    )  # fmt: skip


@click.command()
@address_option
@options.as_json
def jobs(address: str | None, as_json: bool) -> None:
    """List the jobs of a cluster, oldest first."""
    found = _jobs(address).known()
    if as_json:
        keys = ("id", "sweep", "attempt", "status", "start_ms", "end_ms")
        say(json.dumps([{key: getattr(j, key) for key in keys} for j in found], indent=1))
        return
    rows = []
    for job in found:
        end_ms = job.end_ms or int(time.time() * 1000)
        seconds = max(0, end_ms - job.start_ms) / 1000 if job.start_ms else 0
        attempt, time_text = str(job.attempt or NOTHING), duration_text(seconds)
        rows.append([job.id, job.sweep or NOTHING, attempt, job.status.lower(), time_text])
    header = ["job", "sweep", "attempt", "status", "time"]
    say("\n".join(Table(header, rows, right=[2, 4]).lines()) if rows else "no jobs")


@click.command()
@job_argument
@address_option
@click.option("-f", "--follow", is_flag=True, help="Print until the job ends.")
def logs(job: str, address: str | None, follow: bool) -> int:
    """Print the log of a JOB, or of a sweep's newest job."""
    known = _jobs(address)
    found = known.find(job)
    if follow:
        return _follow(known, found.id)
    click.echo(printable(known.logs(found.id)), nl=False)
    return 0


@click.command()
@job_argument
@address_option
def stop(job: str, address: str | None) -> None:
    """Stop a JOB, or a sweep's newest job, as Ctrl-C does.

    Waits until the job has ended. `resume` continues it.
    """
    known = _jobs(address)
    found = known.find(job)
    if not found.running or not known.stop(found.id):
        say(f"{found.id} has ended already: {known.wait_until_ended(found.id).lower()}")
        return
    say(f"stopping {found.id}, which saves its checkpoints first")
    ended = known.wait_until_ended(found.id).lower()
    go_on = f"; to go on: `mtcon-ray resume {found.sweep or found.id}`"
    say(f"{found.id} {ended}{'' if ended == 'succeeded' else go_on}")


def _restored(url: str, root: Path, address: str | None) -> Path:
    """Returns the folder of a mirrored sweep, downloaded if it is not below the root."""
    from mtcon_ray.sweep.restore import restore

    if address is not None:
        raise SpecError(
            f"--address must not be used with the URL of a mirror, got {address}: the sweep "
            "continues here; RAY_ADDRESS names the cluster"
        )
    options.session().say_phase(f"downloading {url}")
    return restore(url, root)


def _jobs(address: str | None) -> "Jobs":
    from mtcon_ray.cluster.jobs import Jobs, cluster_dashboard

    return Jobs(cluster_dashboard(address))


def _inside(target: Path) -> Path:
    """Returns the target's path within the uploaded folder."""
    here = Path.cwd()
    if not target.is_file():
        raise SpecError(f"{target} must be a spec or a script, got no such file in {here}")
    if here not in target.resolve().parents:
        raise SpecError(f"{target} must lie in the folder that is uploaded, got {here}; cd there")
    return target.resolve().relative_to(here)


def _beginnings(target: Path, overrides: tuple[str, ...]) -> tuple[str, str | None, str | None]:
    """Returns name, tracking URI and root of a checked spec; of a script its file name alone."""
    from mtcon_ray.spec import load_spec

    if target.suffix == ".py":
        return target.stem.lower(), None, None
    spec = load_spec(target, overrides)
    root = spec.storage.root
    if root and Path.cwd() in Path(root).parents:
        raise SpecError(
            f"storage.root must lie outside the folder that is uploaded, got {root}: a job's copy "
            "of it vanishes; give an absolute path on the cluster"
        )
    if outside := plugins.outside(spec.plugins, Path.cwd()):
        raise SpecError(
            f"plugins must lie in the folder that is uploaded, {Path.cwd()}, or be installed on "
            f"the cluster, got {', '.join(outside)}; cd to a folder that has spec and plugins"
        )
    return spec.name, spec.tracking.uri, root


def _submit(
    target: Path,
    overrides: tuple[str, ...],
    name: str | None,
    root: str | None,
    address: str | None,
    *,
    follow: bool,
    environ: dict[str, str],
    requirements: Sequence[str] | None,
    retry_failed: bool = False,
) -> int:
    """Submits the sweep of a spec or script, prints where it can be watched, and follows it."""
    from mtcon_ray.cluster.job_package import (
        check_upload,
        job_variables,
        measure_upload,
        without_code,
    )
    from mtcon_ray.cluster.jobs import cluster_dashboard
    from mtcon_ray.cluster.ray_private import wait_for_dashboard

    inside, quiet, here = _inside(target), options.session().quiet, Path.cwd()
    stem, spec_uri, storage = _beginnings(target, overrides)
    if root and not root.startswith(("/", "~")):
        raise SpecError(f"--root must be absolute, for the cluster writes there, got {root!r}")
    is_script = inside.suffix == ".py"
    command = ["python", "-u"] if is_script else ["python", "-m", "mtcon_ray", "sweep"]
    command += [str(inside), *(word for each in overrides for word in ("--set", each))]
    command += ["--root", root] if root else []
    command += [RETRY_FAILED] if retry_failed else []
    has_code = is_script or plugins.allowed_folders() is not None
    command += [options.ALLOW_PLUGINS] if plugins.allowed_folders() is not None else []
    # The log is passed on as it is, so the job itself has to print less.
    command += [QUIET] if quiet and follow else []
    root = root or storage
    check_upload(here)
    variables = job_variables(environ, command)
    wait_for_dashboard(cluster_dashboard(address), DASHBOARD_SECONDS)
    known = _jobs(address)
    with nullcontext(here) if has_code else without_code(here) as working_dir:
        upload = measure_upload(working_dir)
        job = known.submit(
            stem, command, working_dir=working_dir, root=paths.choose_root(root), name=name,
            variables=variables, requirements=requirements,
        )  # fmt: skip
    if quiet:
        say(job.id)
    else:
        uri = spec_uri or environ.get(URI_VARIABLE)
        there = "the head's own; the sweep's last line says how to open it"
        say(f"job {job.id}: {upload.num_files:,} files, {upload.num_bytes / 1e6:.1f} MB")
        if requirements is not None:
            say("environment: packages in the versions of here; each node installs them first")
        say(f"results: {root or paths.DEFAULT_ROOT}, as the cluster's head sees it")
        say(f"dashboard: {known.address}/#/jobs/{job.id}")
        say(f"MLflow: {ui_command(uri) if uri else there}")
    return _follow(known, job.id) if follow else 0


def _follow(known: "Jobs", job_id: str) -> int:
    try:
        with Follower(Terminal.of(), quiet=options.session().quiet) as follower:
            return known.follow(job_id, follower.write, follower.wait)
    except KeyboardInterrupt:
        say(
            f"\n{job_id} goes on; `mtcon-ray logs {job_id} -f` follows it again, "
            f"`mtcon-ray stop {job_id}` ends it",
            err=True,
        )
        return options.INTERRUPTED
