"""`mtcon-ray`: the group of all commands, their error messages and exit codes.

Exit codes: 0 success, 1 failure, 2 invalid input, 130 interrupted.
The module of a command is imported when the command is called, so `--help` answers at once.
"""

import os
import sys
import traceback
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

import click

from mtcon_ray.base.signals import Interrupted, interrupt_on_signals
from mtcon_ray.cli.options import Session, verbosity
from mtcon_ray.cluster.environment import working_directory
from mtcon_ray.display.console import drop_unwritten, open_closed_streams, say
from mtcon_ray.display.presentation import abridged, hanging
from mtcon_ray.errors import MtconError, file_error
from mtcon_ray.tracking.login import masked
from mtcon_ray.version import __version__

HELP = {"help_option_names": ["-h", "--help"]}
# The module and the short help of each command, in the order in which they are used.
COMMANDS = {
    "demo": ("run", "Run a temperature sweep on synthetic images."),
    "init": ("spec", "Write a commented spec for a CSV and its IMAGES."),
    "examples": ("spec", "Copy the documents, example specs, scripts and cluster files."),
    "prepare": ("spec", "Check a published data set, decode it, print a spec."),
    "validate": ("spec", "Check a spec, its labels and its images; start nothing."),
    "plan": ("spec", "Show a sweep's trials, data, resources; start nothing."),
    "train": ("run", "Train once, as a sweep of one trial."),
    "sweep": ("run", "Run or resume a sweep and show its leaderboard."),
    "compare": ("run", "Train the systems of a comparison's FILE with one budget."),
    "evaluate": ("result", "Measure test and held-out scores of a model."),
    "report": ("result", "Build a sweep's report, finished or not; print its path."),
    "list": ("result", "List sweeps, or the jobs of a cluster."),
    "status": ("result", "Show a sweep's state and its trials, or compare two sweeps."),
    "best": ("result", "Show a sweep's winner, its scores and its checkpoint."),
    "export": ("admin", "Export an encoder, or a sweep's trials."),
    "embed": ("embed", "Write an embedding of each image to a Parquet file."),
    "neighbours": ("embed", "Find the images nearest to each IMAGE, by cosine similarity."),
    "audit": ("admin", "Compare the records of a sweep."),
    "clean": ("admin", "Show a sweep's disk usage, or remove it."),
    "submit": ("job", "Run a sweep as a job of a Ray cluster and follow it."),
    "logs": ("job", "Print the log of a JOB, or of a sweep's newest job."),
    "stop": ("job", "Stop a sweep of this machine, or a cluster's job, as Ctrl-C does."),
    "resume": ("job", "Resume a sweep of this machine with its recorded spec."),
    "schema": ("spec", "Print the JSON Schema of a spec, for editors."),
}


@cache
def command_named(name: str) -> click.Command:
    """Returns a command of COMMANDS. Imports its module."""
    module = import_module(f"mtcon_ray.cli.{COMMANDS[name][0]}_commands")
    command: click.Command = getattr(module, "list_names" if name == "list" else name)
    return verbosity(command)


class Script(click.Command):
    """Command with an exit code for every error. Only unexpected errors have a trace."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Runs the command and exits with its code. Takes the arguments of `click.Command.main`."""
        session = Session()
        options |= {"standalone_mode": False, "obj": session}
        try:
            working_directory()  # without it torch ends the process with a message of oneMKL's
            code = super().main(*arguments, **options)
        except click.ClickException as error:
            error.show()
            code = error.exit_code
        except (click.Abort, KeyboardInterrupt):
            say("stopped", err=True)
            code = Interrupted.exit_code
        except BrokenPipeError:  # the reader of the output has ended
            code = 1
        except Exception as error:
            code = _explain(error, session)
        drop_unwritten()
        sys.exit(code if isinstance(code, int) else 0)


class Program(Script, click.Group):
    """Group of the commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names in the order in which they are used."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Returns a command, or None if there is none of this name."""
        return command_named(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the short helps, without the import of any command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the installed program or a script. A signal ends it as Ctrl-C does."""
    run_script(program, arguments, str(program.name))


def run_script(script: Script, arguments: Sequence[str] | None, name: str) -> None:
    """Runs a script and exits. SIGTERM or SIGHUP ends it as Ctrl-C does."""
    # Processes started by libraries, such as torch's compilers, look for no modules in the working
    # directory, which may be a folder of data.
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    open_closed_streams()
    interrupt_on_signals()
    script(arguments, prog_name=name)


@click.group("mtcon-ray", cls=Program, context_settings=HELP)
@click.version_option(__version__, message="%(prog)s %(version)s")
@verbosity
def program() -> None:
    """Sweeps over multi-task contrastive training: plan, run, resume, report.

    `mtcon-ray examples FOLDER` copies the documents, which begin with FOLDER/docs/index.md.
    """


def _explain(error: Exception, session: Session) -> int:
    """Prints an error, with its trace if it is unexpected or with -v. Returns its exit code."""
    known = error if isinstance(error, MtconError) else file_error(error)
    if known is None or session.verbosity > 0:
        say(masked("".join(traceback.format_exception(error))), err=True)
    first = f"unexpected {type(error).__name__}: {error}".splitlines()[0]
    say(abridged(hanging(masked(f"error: {known or first}"))), err=True)
    return known.exit_code if known else 1
