"""The command of a script. Imports neither Ray nor MLflow nor Optuna."""

from collections.abc import Callable
from pathlib import Path

import click

from mtcon_ray.cli import options as cli_options
from mtcon_ray.cli.main import HELP, Script

FOLDER = click.Path(path_type=Path, file_okay=False, exists=True, resolve_path=True)


def script(name: str, text: str, act: Callable[..., int | None]) -> Script:
    """Returns the command that calls `act` with its options, and prints `text` as its help."""
    command = click.command(name, help=text, cls=Script, context_settings=HELP)(act)
    return cli_options.verbosity(command)
