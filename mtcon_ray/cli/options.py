"""Options that several commands share, and the verbosity of all."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from mtcon_ray.cli.terminal import say
from mtcon_ray.paths import choose_root, list_folders, runs_folder, sweeps_folder

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass
class Session:
    """State of one invocation: its verbosity, and the folder of traces of unexpected errors."""

    verbosity: int = 0
    log_folder: Path | None = None

    @property
    def quiet(self) -> bool:
        """True if only results and errors are printed."""
        return self.verbosity < 0

    @property
    def verbose(self) -> bool:
        """True if errors are printed with their trace."""
        return self.verbosity > 0

    def say_phase(self, what: str) -> None:
        """Prints that a long preparation begins, on stderr."""
        if not self.quiet:
            say(f"preparing: {what}", err=True)


def verbosity(command: Command) -> Command:
    """Adds `-v` and `-q`, which are accepted before and after the name of a command."""

    def louder(context: click.Context, parameter: click.Parameter, value: bool) -> None:
        if value:
            context.ensure_object(Session).verbosity += 1

    def quieter(context: click.Context, parameter: click.Parameter, value: bool) -> None:
        if value:
            context.ensure_object(Session).verbosity -= 1

    options: dict[str, Any] = {"is_flag": True, "expose_value": False}
    add_v = click.option("-v", "--verbose", callback=louder, help="Show traces.", **options)
    add_q = click.option("-q", "--quiet", callback=quieter, help="Results only.", **options)
    return add_v(add_q(command))


def _names(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    root = choose_root(context.params.get("root"))
    folders = [*list_folders(sweeps_folder(root)), *list_folders(runs_folder(root))]
    return [CompletionItem(f.name) for f in folders if f.name.startswith(incomplete)]


session = click.make_pass_decorator(Session, ensure=True)
spec_file = click.argument("spec", type=click.Path(path_type=Path))
name = click.argument("name", shell_complete=_names)
overrides = click.option(
    "--set", "overrides", multiple=True, metavar="PATH=VALUE",
    help="Change a field of the spec, as method.temperature=0.2; may be repeated.",
)  # fmt: skip
root = click.option(
    "--root", metavar="FOLDER", help="Folder of all results.  [default: ~/mtcon-ray]"
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
