"""`mtcon-ray`: the group of all commands, their error messages and exit codes.

Exit codes: 0 success, 1 failure, 2 invalid input, 130 interrupted.
Commands delay their imports until they run, which lets `--help` answer at once.
"""

import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from typing import Any

import click

from mtcon_ray.base.signals import interrupt_on_signals
from mtcon_ray.cli.admin_commands import (
    audit,
    clean,
    export,
    export_tracking,
    mirror,
    track_sync,
)
from mtcon_ray.cli.job_commands import logs, resume, stop, submit
from mtcon_ray.cli.options import INTERRUPTED, Session, completion, verbosity
from mtcon_ray.cli.result_commands import best, evaluate, list_names, report, status
from mtcon_ray.cli.run_commands import compare, demo, sweep, train
from mtcon_ray.cli.spec_commands import examples, init, plan, prepare, schema, validate
from mtcon_ray.cluster.environment import working_directory
from mtcon_ray.display.presentation import abridged, hanging, printable
from mtcon_ray.display.terminal import drop_unwritten, open_closed_streams, say
from mtcon_ray.errors import MtconError, file_error, limit_error
from mtcon_ray.tracking.login import masked
from mtcon_ray.version import __version__

HELP = {"help_option_names": ["-h", "--help"]}


class Script(click.Command):
    """Command with a single line and an exit code for every error."""

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
        except MtconError as error:
            code = _explain(error, session)
        except (click.Abort, KeyboardInterrupt):
            say("stopped", err=True)
            code = INTERRUPTED
        except BrokenPipeError:  # the reader of the output has ended
            code = 1
        except Exception as error:
            known = file_error(error) or limit_error(error)
            code = _record(error, session) if known is None else _explain(known, session)
        drop_unwritten()
        sys.exit(code if isinstance(code, int) else 0)


class Program(Script, click.Group):
    """Group of such commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the commands in the order in which they are used."""
        return list(self.commands)


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
@completion
@verbosity
def program() -> None:
    """Sweeps over multi-task contrastive training: plan, run, resume, report."""


for command in (
    demo, init, examples, prepare, validate, plan, train, sweep, compare, evaluate, report,
    list_names, status, best, export, audit, clean, track_sync, mirror, export_tracking, submit,
    logs, stop, resume, schema,
):  # fmt: skip
    program.add_command(verbosity(command))


def _explain(error: MtconError, session: Session) -> int:
    if session.verbose:
        say(masked("".join(traceback.format_exception(error))), err=True)
    say(abridged(hanging(masked(f"error: {error}"))), err=True)
    return error.exit_code


def _record(error: Exception, session: Session) -> int:
    """Writes the trace of an unexpected error to a temporary file and prints its path."""
    text = masked("".join(traceback.format_exception(error)))
    try:
        # A new file, readable by its owner alone: it follows no link of another user.
        descriptor, path = tempfile.mkstemp(prefix="mtcon-ray-error-", suffix=".txt")
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as problem:
        path = f"not written: {problem.strerror}"
    if session.verbose:
        say(text, err=True)
    first = masked(f"{type(error).__name__}: {error}".splitlines()[0])
    say(f"error: unexpected {abridged(printable(first))} (trace: {path})", err=True)
    return 1
