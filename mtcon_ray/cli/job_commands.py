"""Commands for a cluster: submit, jobs, logs, stop."""

import os
import time
from pathlib import Path
from typing import Any

import click

from mtcon_ray.cli.run_commands import MLFLOW_VARIABLE, name_option
from mtcon_ray.cli.session import Session, overrides, root, session, spec_file
from mtcon_ray.errors import SpecError
from mtcon_ray.places import choose_root

address_option = click.option(
    "--address", metavar="URL", help="The cluster's dashboard.  [default: http://127.0.0.1:8265]"
)


@click.command()
@spec_file
@overrides
@name_option
@root
@address_option
@click.option("--no-follow", is_flag=True, help="Return at once; `logs -f` shows the rest.")
@session
def submit(
    session: Session,
    spec: Path,
    overrides: tuple[str, ...],
    name: str | None,
    root: str | None,
    address: str | None,
    no_follow: bool,
) -> int:
    """Run a sweep as a job of a Ray cluster, and follow it; one that was stopped goes on.

    Uploads the current folder, which must hold SPEC, less what .gitignore and .rayignore name.
    """
    from mtcon_ray.spec import load_spec
    from mtcon_ray.sweep.jobs import Jobs, check_upload, check_variables, cluster_dashboard

    run_spec = load_spec(spec, overrides)
    here = Path.cwd()
    if here not in spec.resolve().parents:
        raise SpecError(f"{spec} must lie in the folder that is uploaded, got {here}; cd there")
    where = choose_root(root or run_spec.storage.root)
    upload = check_upload(here)
    variables = check_variables(os.environ.get(MLFLOW_VARIABLE))
    jobs = Jobs(cluster_dashboard(address))
    command = ["python", "-m", "mtcon_ray", "sweep", str(spec.resolve().relative_to(here))]
    for override in overrides:
        command += ["--set", override]
    job = jobs.submit(
        run_spec.name,
        [*command, *(["--root", str(where)] if root else [])],
        working_dir=here,
        root=where,
        name=name,
        variables=variables,
    )
    if not session.quiet:
        click.echo(f"job {job.id}: {upload.num_files:,} files, {upload.num_bytes / 1e6:.1f} MB")
        click.echo(f"dashboard: {jobs.address}/#/jobs/{job.id}")
    return 0 if no_follow else _follow(jobs, job.id)


@click.command()
@address_option
def jobs(address: str | None) -> None:
    """List a cluster's sweeps that were submitted, oldest first."""
    from mtcon_ray.cli.text import duration, table
    from mtcon_ray.sweep.jobs import Jobs, cluster_dashboard

    rows = []
    for job in Jobs(cluster_dashboard(address)).known():
        end_ms = job.end_ms or int(time.time() * 1000)
        seconds = (end_ms - job.start_ms) / 1000 if job.start_ms else 0
        rows.append([job.id, job.sweep, str(job.attempt), job.status.lower(), duration(seconds)])
    header = ["job", "sweep", "attempt", "status", "time"]
    click.echo("\n".join(table(header, rows, right=[2, 4])) if rows else "no jobs")


@click.command()
@click.argument("job")
@address_option
@click.option("-f", "--follow", is_flag=True, help="Go on until the job ends.")
def logs(job: str, address: str | None, follow: bool) -> int:
    """Print what a JOB, or a sweep's newest, has printed."""
    from mtcon_ray.sweep.jobs import Jobs, cluster_dashboard

    known = Jobs(cluster_dashboard(address))
    found = known.find(job)
    if follow:
        return _follow(known, found.id)
    click.echo(known.logs(found.id), nl=False)
    return 0


@click.command()
@click.argument("job")
@address_option
def stop(job: str, address: str | None) -> None:
    """Stop a JOB, or a sweep's newest, as Ctrl-C does; submit it again to go on."""
    from mtcon_ray.sweep.jobs import Jobs, cluster_dashboard

    known = Jobs(cluster_dashboard(address))
    found = known.find(job)
    known.stop(found.id)
    click.echo(
        f"stopping {found.id}; to go on: repeat `mtcon-ray submit` with --name {found.sweep}"
    )


def _follow(known: Any, job_id: str) -> int:
    try:
        code: int = known.follow(job_id, lambda text: click.echo(text, nl=False))
    except KeyboardInterrupt:
        click.echo(f"\nthe job goes on; `mtcon-ray stop {job_id}` ends it", err=True)
        return 0
    return code
