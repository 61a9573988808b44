"""Commands that train: train and sweep."""

import os
from pathlib import Path

import click

from mtcon_ray.cli.session import Session, overrides, root, session, spec_file
from mtcon_ray.cli.terminal import say
from mtcon_ray.errors import SweepError
from mtcon_ray.places import (
    DEFAULT_ROOT,
    SPEC_FILE,
    choose_root,
    log_folder,
    run_folder,
    sweep_folder,
)

MLFLOW_VARIABLE = "MLFLOW_TRACKING_URI"


def _checked_name(
    context: click.Context, parameter: click.Parameter, name: str | None
) -> str | None:
    """Refuses what is no name, before anything is started or printed."""
    if name is not None:
        sweep_folder(DEFAULT_ROOT, name)
    return name


name_option = click.option(
    "--name",
    callback=_checked_name,
    help="A name of your own.  [default: <spec.name>-<n>]",
)
resume_option = click.option(
    "--resume", is_flag=True, help="Go on with --name, or with the newest of this spec."
)
continue_option = click.option(
    "--continue", "goes_on", is_flag=True,
    help="Start --name, or go on with it where it is there: for whatever starts a sweep again.",
)  # fmt: skip


@click.command()
@spec_file
@overrides
@name_option
@resume_option
@root
@session
def train(
    session: Session,
    spec: Path,
    overrides: tuple[str, ...],
    name: str | None,
    resume: bool,
    root: str | None,
) -> None:
    """Train once, tracked, without Ray; the spec's search is not used."""
    from mtcon_ray.cli.console import Console
    from mtcon_ray.cli.terminal import Terminal

    with Console(Terminal.of(), quiet=session.quiet) as console:
        from mtcon_ray.cli.standings import accuracies, last_metrics
        from mtcon_ray.results import load_sweep
        from mtcon_ray.single import train_run
        from mtcon_ray.spec import load_spec
        from mtcon_ray.training.checkpoint import kept_model

        run_spec = load_spec(spec, overrides, with_search=False)
        where = choose_root(root or run_spec.storage.root)
        session.log_folder = log_folder(where)
        result = train_run(
            run_spec,
            root=where,
            name=name,
            resume=resume,
            observer=console,
            environ_uri=os.environ.get(MLFLOW_VARIABLE),
        )
    folder = run_folder(where, result.name)
    for line in accuracies(run_spec, load_sweep(folder).plan, last_metrics(result)):
        say(line)
    say(f"checkpoint: {kept_model(folder)} (network of epoch {result.model_epoch})")


@click.command()
@spec_file
@overrides
@name_option
@resume_option
@continue_option
@root
@session
def sweep(
    session: Session,
    spec: Path,
    overrides: tuple[str, ...],
    name: str | None,
    resume: bool,
    goes_on: bool,
    root: str | None,
) -> int:
    """Run a sweep to its end, or go on with one; show the leaderboard."""
    from mtcon_ray.cli.console import Console
    from mtcon_ray.cli.terminal import Terminal, printable

    uri = os.environ.get(MLFLOW_VARIABLE)
    terminal = Terminal.of()
    with Console(terminal, quiet=session.quiet) as console:
        from mtcon_ray.spec import load_spec

        run_spec = load_spec(spec, overrides)
        where = choose_root(root or run_spec.storage.root)
        session.log_folder = log_folder(where)
        resume = _is_there(where, name) if goes_on else resume

        from mtcon_ray.cluster.job_package import VERSIONS_VARIABLE, check_versions

        # Before what may not even be imported in other versions.
        check_versions(os.environ.get(VERSIONS_VARIABLE))

        from mtcon_ray.cli.standings import leaderboard, winner_lines
        from mtcon_ray.sweep.driver import run_sweep
        from mtcon_ray.tracking.server import tracking_uri, ui_command

        results = run_sweep(
            run_spec, root=where, name=name, resume=resume, observer=console, environ_uri=uri
        )
    leaders = leaderboard(results, columns=terminal.size[0] if terminal.live else None)
    lines = [*map(printable, [*leaders, "", *winner_lines(results)])]
    lines.append(f"report: {results.folder / 'report' / 'index.html'}")
    lines.append(f"MLflow: {ui_command(tracking_uri(run_spec.tracking.uri, uri, where))}")
    terminal.write("\n".join(["", *lines, ""]))
    return 0 if results.winner else 1


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@overrides
@click.option("--only", multiple=True, metavar="TITLE", help="One system; may be repeated.")
@root
@session
def compare(
    session: Session,
    file: Path,
    overrides: tuple[str, ...],
    only: tuple[str, ...],
    root: str | None,
) -> int:
    """Train the systems of a comparison's FILE under one budget; go on with what was begun."""
    from mtcon_ray.cli.console import Console
    from mtcon_ray.cli.terminal import Terminal
    from mtcon_ray.comparison.run import run_comparison
    from mtcon_ray.comparison.spec import load_comparison
    from mtcon_ray.comparison.table import markdown

    comparison = load_comparison(file, overrides, only)
    first = next(iter(comparison.specs.values()))
    where = choose_root(root or first.storage.root)
    session.log_folder = log_folder(where)

    def watch(title: str) -> Console:
        if not session.quiet:
            say(f"\n{title}")
        return Console(Terminal.of(), quiet=session.quiet)

    rows, folder = run_comparison(
        comparison,
        root=where,
        watch=watch,
        on_phase=session.say_phase,
        environ_uri=os.environ.get(MLFLOW_VARIABLE),
    )
    say(f"\n{markdown(rows, comparison.claims)}\ntable and picture: {folder}")
    return 0 if all(row.finished for row in rows) else 1


def _is_there(root: Path, name: str | None) -> bool:
    if not name:
        raise SweepError("--continue must have a --name to start or to go on with, got none")
    return (sweep_folder(root, name) / SPEC_FILE).exists()
