"""Commands for a cluster: submit, resume, logs, stop."""

import os
import time
from contextlib import suppress
from fnmatch import filter as filter_names
from pathlib import Path

import click

from mtcon_ray.base import paths, plugins
from mtcon_ray.base.lock import is_driven, stop_driver
from mtcon_ray.base.registry import URL, PathMark, fields_with
from mtcon_ray.base.signals import Interrupted
from mtcon_ray.cli import options
from mtcon_ray.cli.run_commands import run
from mtcon_ray.cluster.jobs import Jobs, job_environment, job_variables
from mtcon_ray.display.console import say
from mtcon_ray.display.presentation import NOTHING, duration_text, printable, resume_line
from mtcon_ray.display.tables import Table
from mtcon_ray.errors import MtconError, SpecError, StorageError, SweepError, UserError
from mtcon_ray.records.recorded import load_recorded, read_recorded
from mtcon_ray.records.results import EXECUTOR, HERE, JOB, first_tags
from mtcon_ray.records.stored import find_sweep, refresh_names
from mtcon_ray.spec.run_spec import RunSpec, load_spec

address_option = click.option(
    "--address", metavar="URL",
    help="The cluster's dashboard.  [default: RAY_API_SERVER_ADDRESS, else http://127.0.0.1:8265]",
)  # fmt: skip


@click.command()
@click.argument("target", metavar="SPEC|SCRIPT", type=options.PATH)
@options.overrides
@options.sweep_name
@options.retry_failed
@options.root_option("storage.root, else the head's MTCON_RAY_ROOT, else ~/mtcon-ray there")
@address_option
@click.option("--no-follow", is_flag=True, help="Return at once; `logs -f` follows the job later.")
@options.trust_tracking
@click.option(
    "--requirements", metavar="FILE", type=options.PATH,
    help="Packages that pip installs on every node for this job, one per line.",
)  # fmt: skip
def submit(
    target: Path,
    overrides: tuple[str, ...],
    name: str | None,
    root: str | None,
    address: str | None,
    no_follow: bool,
    requirements: Path | None,
    retry_failed: bool,
) -> int:
    """Run a sweep as a job of a Ray cluster and follow it.

    With --name a stopped one is resumed.
    The job's lines are shown as `sweep` prints them in a log.
    The current folder, which must contain SPEC, is uploaded without the files that .gitignore and
    .rayignore name. Modules are uploaded with a SCRIPT or --allow-plugins only.
    Everything is written on the cluster, below --root.
    A SCRIPT passes its arguments to mtcon_ray, as experiments/sweep_*.py do.
    """
    if retry_failed and not name:
        raise UserError(f"{options.RETRY_FAILED} needs --name, the sweep to resume")
    target, session = _inside(target), options.session()
    stem, storage = _beginnings(target, overrides)
    if root and not (root.startswith(("/", "~")) or URL.match(root)):
        raise SpecError(f"--root must be absolute, as a path of the cluster, got {root!r}")
    is_script, has_plugins = target.suffix == ".py", plugins.allowed_folders() is not None
    has_code = is_script or has_plugins
    command = ["python", "-u"] if is_script else ["python", "-m", "mtcon_ray", "sweep"]
    command += [str(target), *(word for each in overrides for word in ("--set", each))]
    command += ["--root", root] if root else []
    command += [options.RETRY_FAILED] * retry_failed + [options.ALLOW_PLUGINS] * has_plugins
    # The log is passed on as it is, so the job itself has to print less.
    command += ["-q"] * (session.quiet and not no_follow)
    variables = job_variables(dict(os.environ), command)
    environment = job_environment(Path.cwd(), variables, requirements, has_code=has_code)
    known = Jobs(address, patient=True)
    root = root or storage
    where = paths.choose_root(root)
    with suppress(StorageError):  # this machine may have no keys of the cluster's store
        refresh_names(where)
    job = known.submit(stem, command, name=name, root=where, env=environment)
    say(job.id if session.quiet else f"job {job.id}")
    session.say(f"results: {root or 'MTCON_RAY_ROOT, else ~/mtcon-ray'}, as the head sees it")
    session.say(f"dashboard: {known.address}/#/jobs/{job.id}")
    return 0 if no_follow else _follow(known, job.id)


@click.command()
@click.argument("name", metavar="NAME|URL", callback=options.located)
@options.overrides
@options.retry_failed
@options.take_over
@options.root_folder
@options.trust_tracking
def resume(name: str, overrides: tuple[str, ...], root: Path, **given: bool) -> int:
    """Resume a sweep of this machine with its recorded spec.

    A sweep that began without Ray continues without Ray.
    --set search.num_trials=N adds trials. `submit --name NAME` resumes a sweep of a cluster's job.
    With the URL of a sweep in an object store, ROOT/sweeps/NAME, it continues on this machine.
    """
    folder = find_sweep(root, name)
    begun = first_tags(folder)
    if JOB in begun and not paths.stored_url(folder):
        raise SweepError(f"a job of a cluster began sweep {name!r}; {resume_line(name, None)}")
    spec = load_recorded(folder / paths.SPEC_FILE, overrides)
    root = paths.choose_root(paths.shown(root), spec.storage.local)
    return run(spec, root, name=name, resume=True, here=begun.get(EXECUTOR) == HERE, **given)


def list_jobs(address: str | None, *, as_json: bool) -> None:
    """Prints the jobs of a cluster, oldest first."""
    found = Jobs(address).known()
    rows = []
    for job in found:
        end_ms = job.end_ms or int(time.time() * 1000)
        seconds = max(0, end_ms - job.start_ms) / 1000 if job.start_ms else 0
        rows.append([job.id, job.sweep or NOTHING, job.status.lower(), duration_text(seconds)])
    table = Table(["job", "sweep", "status", "time"], rows, right=[3])
    lines = table.lines() if rows else ["no jobs"]
    keys = {"id", "sweep", "status", "start_ms", "end_ms"}
    options.tell([job.model_dump(include=keys) for job in found], lines, as_json=as_json)


@click.command()
@click.argument("job")
@address_option
@click.option("-f", "--follow", is_flag=True, help="Print until the job ends.")
def logs(job: str, address: str | None, follow: bool) -> int:
    """Print the log of a JOB, or of a sweep's newest job."""
    known = Jobs(address)
    found = known.find(job)
    if follow:
        return _follow(known, found.id)
    _print(known.logs(found.id))
    return 0


@click.command()
@click.argument("job", metavar="NAME|JOB", callback=options.located)
@options.root_folder
@address_option
def stop(job: str, root: Path, address: str | None) -> None:
    """Stop a sweep of this machine, or a cluster's job, as Ctrl-C does.

    Waits until it has ended. Without a sweep NAME under --root, and with --address, it is a JOB or
    a sweep's newest job. `resume`, or `submit --name` for a job, continues the sweep.
    """
    if address is None and paths.NAME.fullmatch(job):
        folder = _driven_folder(root, job)
        is_known = is_driven(folder) or (folder / paths.SPEC_FILE).exists()
        if is_known and JOB not in first_tags(folder):
            return _stop_here(folder)
    try:
        known = Jobs(address)
    except MtconError as error:
        try:
            find_sweep(root, job)
        except SweepError as unknown:
            raise SweepError(f"{unknown}; {error}") from None
        raise
    found = known.find(job)
    if not found.running:
        say(f"{found.id} has ended already: {found.status.lower()}")
        return
    say(f"stopping {found.id}, which saves its checkpoints first")
    ended = known.stop(found.id).lower()
    how = f"; to continue: {resume_line(found.sweep or 'NAME', None)}"
    say(f"{found.id} {ended}{'' if ended == 'succeeded' else how}")


def _driven_folder(root: Path, name: str) -> Path:
    """Returns the folder of a sweep whose lock its driver holds.

    The driver of a sweep in an object store has it below `storage.local` of the recorded spec.
    """
    folder = paths.sweep_folder(root, name)
    if paths.stored_url(root):
        with suppress(StorageError, SweepError):  # a job's name, or no keys of the store
            local = read_recorded(find_sweep(root, name) / paths.SPEC_FILE).storage.local
            own = paths.sweep_folder(paths.choose_root(paths.shown(root), local), name)
            return own if is_driven(own) else folder
    return folder


def _stop_here(folder: Path) -> None:
    """Ends the driver of a sweep on this machine. Raises SweepError if it runs elsewhere."""
    name = folder.name
    if not is_driven(folder):
        return say(f"{name} is not running")
    stop_driver(folder)
    say(f"stopping {name}, which saves its checkpoints first")
    while is_driven(folder):  # a second stop ends it at once
        time.sleep(0.2)
    say(f"{name} has ended; to continue: {resume_line(name, folder.parents[1])}")


def _inside(target: Path) -> Path:
    """Returns the target's path within the uploaded folder."""
    here, path = Path.cwd(), target.resolve()
    if not path.is_file() or here not in path.parents:
        raise SpecError(
            f"SPEC or SCRIPT must be a file in {here}, which is uploaded, got {target}; cd there"
        )
    return path.relative_to(here)


def _beginnings(target: Path, overrides: tuple[str, ...]) -> tuple[str, str | None]:
    """Returns name and root of a checked spec. For a script, returns its file name alone."""
    if target.suffix == ".py":
        return target.stem.lower(), None
    spec = load_spec(target, overrides)
    root = spec.storage.root
    if root and Path.cwd() in Path(root).parents:
        raise SpecError(
            f"storage.root must lie outside the folder that is uploaded, got {root}; give an "
            "absolute path on the cluster, because a job's copy of the folder is deleted"
        )
    _check_upload(spec)
    return spec.name, root


def _check_upload(spec: RunSpec) -> None:
    """Raises SpecError for data in the uploaded folder that the upload lacks."""
    here, files = Path.cwd(), [Path(name) for name in (".gitignore", ".rayignore")]
    lines = [line for file in files if file.is_file() for line in file.read_text().splitlines()]
    is_plain = not any(line.startswith("!") for line in lines)  # whose exceptions Ray knows
    patterns = {line.strip().rstrip("/") for line in lines} if is_plain else set()
    for field in fields_with(type(spec.data), PathMark):
        path = Path(str(getattr(spec.data, field, None)))
        if here not in path.parents:
            continue
        inner = path.relative_to(here)
        parts = [inner, *inner.parents][:-1]
        names = [name for part in parts for name in (part.name, str(part), f"/{part}")]
        found = {pattern for pattern in patterns if filter_names(names, pattern)}
        why = f"an ignore file names {min(found)}" if found else "it does not exist"
        if found or not path.exists():
            raise SpecError(
                f"data.{field} must be uploaded or lie on the cluster, got {inner}, which the "
                f"upload lacks: {why}; give an absolute path of the cluster, or a URL"
            )


def _follow(known: Jobs, job_id: str) -> int:
    try:
        return known.follow(job_id, _print)
    except KeyboardInterrupt:
        how = f"`mtcon-ray logs {job_id} -f` follows it again, `mtcon-ray stop {job_id}` ends it"
        say(f"\n{job_id} continues; {how}", err=True)
        return Interrupted.exit_code


def _print(text: str) -> None:
    click.echo(printable(text), nl=False)
