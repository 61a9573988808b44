"""Commands that keep house: clean, track-sync, completion."""

import os
import shutil
from pathlib import Path

import click

from mtcon_ray.cli.session import Session, name, root, session
from mtcon_ray.cli.terminal import say
from mtcon_ray.errors import SweepError, TrackingError
from mtcon_ray.places import SPEC_FILE, choose_root, find_folder, log_folder, store_folder


@click.command()
@name
@root
@click.option("--yes", is_flag=True, help="Really remove it.")
def clean(name: str, root: str | None, yes: bool) -> None:
    """Show what a sweep or training takes on disk; remove it with --yes."""
    from mtcon_ray.cli.text import size
    from mtcon_ray.lock import is_driven

    where = choose_root(root)
    folder = find_folder(where, name)
    if is_driven(folder):
        raise SweepError(f"{folder.name!r} is running; stop it before it is removed")
    for entry in sorted(folder.iterdir()):
        say(f"{size(_bytes(entry)):>10}  {entry}")
    say(f"{size(_bytes(folder)):>10}  {folder}, in all")
    say(f"not touched: its runs in MLflow, and decoded images in {store_folder(where)}")
    if not yes:
        say("nothing removed; --yes removes it")
        return
    # Renamed first: a removal that is cut leaves no half sweep under its name.
    doomed = folder.with_name(f".removing-{folder.name}")
    folder.rename(doomed)
    shutil.rmtree(doomed)
    say(f"removed {folder}")


@click.command("track-sync")
@name
@root
@session
def track_sync(session: Session, name: str, root: str | None) -> None:
    """Send to MLflow what a sweep or training could not send while it ran."""
    from mtcon_ray.lock import driver_lock
    from mtcon_ray.spec import load_spec
    from mtcon_ray.tracking import sender
    from mtcon_ray.tracking.server import check_server, masked, tracking_uri

    where = choose_root(root)
    folder = find_folder(where, name)
    session.log_folder = log_folder(where)
    tracking = load_spec(folder / SPEC_FILE).tracking
    uri = tracking_uri(tracking.uri, os.environ.get("MLFLOW_TRACKING_URI"), where)
    with driver_lock(folder):
        check_server(uri)
        sent, left = sender.track_sync(folder, uri, tracking.experiment)
    if not session.quiet:
        say(f"{sent} events sent to {masked(uri)}, {left} left")
    if left:
        raise TrackingError(f"{left} events of {folder.name!r} are not sent yet; try again later")


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print what makes a SHELL complete commands, options and names.

    bash: add to ~/.bashrc   eval "$(mtcon-ray completion bash)"
    """
    from click.shell_completion import get_completion_class

    complete = get_completion_class(shell)
    assert complete is not None, f"click knows {shell}"
    program = context.find_root().command
    click.echo(complete(program, {}, "mtcon-ray", "_MTCON_RAY_COMPLETE").source())


def _bytes(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else (path,)
    return sum(file.lstat().st_size for file in files if not file.is_dir())
