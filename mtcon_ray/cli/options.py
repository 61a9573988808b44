"""Options shared by several commands, and the verbosity of all."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from mtcon_ray.base import plugins
from mtcon_ray.base.paths import choose_root, shown
from mtcon_ray.cluster.environment import ROOT_VARIABLE, cluster_address, root_of as root_of
from mtcon_ray.display.console import Console, Terminal, say
from mtcon_ray.records.claim import TAKE_OVER
from mtcon_ray.tracking.login import TRUST_OPTION, TRUST_VARIABLE, trust
from mtcon_ray.tracking.mlflow_server import tracking_uri

if TYPE_CHECKING:
    from mtcon_ray.plan.capacity import ClusterView
    from mtcon_ray.spec.run_spec import RunSpec

ALLOW_PLUGINS, RETRY_FAILED = "--allow-plugins", "--retry-failed"
PATH = click.Path(path_type=Path)
DEFAULT_ROOT = f"{ROOT_VARIABLE}, else ~/mtcon-ray"
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass
class Session:
    """State of an invocation. With a `verbosity` above 0 all errors are printed with a trace."""

    verbosity: int = 0

    @property
    def quiet(self) -> bool:
        """True if only results and errors are printed."""
        return self.verbosity < 0

    def say(self, text: str, *, err: bool = False) -> None:
        """Prints a text unless quiet."""
        if not self.quiet:
            say(text, err=err)

    def say_phase(self, what: str) -> None:
        """Prints that a long preparation begins, on stderr."""
        self.say(f"preparing: {what}", err=True)


def session() -> Session:
    """Returns the state of the invocation of the running command."""
    return click.get_current_context().ensure_object(Session)


def display(stream: TextIO | None = None, *, quiet: bool = False) -> Console:
    """Returns a display of progress, by default on standard output.

    It shows notes only with -q or `quiet`.
    """
    return Console(Terminal(stream), quiet=quiet or session().quiet)


def tell(data: object, lines: Iterable[str], *, as_json: bool) -> None:
    """Prints data as JSON for programs, else lines for people."""
    say(json.dumps(data, indent=1) if as_json else "\n".join(lines))


def cluster_view(cluster: str | None) -> "ClusterView":
    """Returns the nodes available to a sweep. Imports Ray only if a cluster is meant."""
    from mtcon_ray.plan.local import LOCAL, this_machine

    if cluster == LOCAL or not (cluster or cluster_address()):
        return this_machine()
    from mtcon_ray.cluster.connection import view_of

    return view_of(cluster, session().say_phase)


def verbosity(command: Command) -> Command:
    """Adds `-v` and `-q`, which are accepted before and after the name of a command."""

    def change(context: click.Context, parameter: click.Parameter, given: bool) -> None:
        context.ensure_object(Session).verbosity += given if parameter.name == "verbose" else -given

    options: dict[str, Any] = {"is_flag": True, "expose_value": False, "callback": change}
    add_v = click.option("-v", "--verbose", help="Show traces.", **options)
    return add_v(click.option("-q", "--quiet", help="Results only.", **options)(command))


def root_option(default: str, **options: Any) -> Callable[[Command], Command]:
    """Returns the option `--root`, with the default in its help."""
    help_text = f"Folder of all results, or its s3:// or gs:// URL.  [default: {default}]"
    # Eager, because `located` may replace it.
    return click.option("--root", metavar="FOLDER|URL", is_eager=True, help=help_text, **options)


def uri_of(spec: "RunSpec", root: Path) -> str:
    """Returns the tracking URI of a sweep, which by default is below its driver's root."""
    return tracking_uri(spec.tracking.uri, choose_root(shown(root), spec.storage.local))


def located(context: click.Context, parameter: click.Parameter, given: str) -> str:
    """Returns the name of a sweep in its URL, ROOT/sweeps/NAME or ROOT/NAME, and sets the root.

    Returns any other text itself. It is the callback of an argument beside `root_folder`.
    """
    root, name = place_of(given)
    if root is not None:
        context.params["root"] = root
    return name


def place_of(given: str) -> tuple[Path | None, str]:
    """Returns root and name of a sweep in its URL. A name alone has no root."""
    if "://" not in given:
        return None, given
    url, _, name = given.rstrip("/").rpartition("/")
    return root_of(url.removesuffix("/sweeps")), name


spec_file = click.argument("spec", type=PATH)


allow_plugins = click.option(
    ALLOW_PLUGINS, is_flag=True, expose_value=False,
    callback=lambda context, parameter, given: plugins.allow() if given else None,
    envvar="MTCON_RAY_ALLOW_PLUGINS", show_envvar=True,
    help="Import the modules that the spec names in `plugins`, which runs their code.",
)  # fmt: skip


def overrides(command: Command) -> Command:
    """Adds `--set` and `--allow-plugins`, for commands that read and change whole specs."""
    change = click.option(
        "--set", "overrides", multiple=True, metavar="PATH=VALUE",
        help="Change a field of the spec, as train.epochs=5, for all trials; may be repeated.",
    )  # fmt: skip
    return change(allow_plugins(command))


trust_tracking = click.option(
    TRUST_OPTION, multiple=True, metavar="ADDRESS", expose_value=False,
    callback=lambda context, parameter, given: trust(given) if given else None,
    help="Send the login for MLflow to this server or database too, which only a spec names, or "
    f"which has no TLS; may be repeated.  [env var: {TRUST_VARIABLE}]",
)  # fmt: skip
root = root_option(f"storage.root, else {DEFAULT_ROOT}")
# As an absolute path, for commands that read no `storage.root` from a spec.
root_folder = root_option(DEFAULT_ROOT, callback=lambda context, parameter, given: root_of(given))


def recorded(command: Command) -> Command:
    """Adds NAME and `--root` of a sweep, whose URL may stand in place of NAME."""
    return click.argument("name", callback=located)(root_folder(command))


trained_model = click.argument("model", metavar="NAME|CHECKPOINT|EXPORT", callback=located)
sweep_name = click.option("--name", help="Name of the sweep.  [default: <spec.name>-<n>]")
retry_failed = click.option(RETRY_FAILED, is_flag=True, help="Resume and retrain failed trials.")
take_over = click.option(
    TAKE_OVER, is_flag=True,
    help="With a root in an object store: take the sweep from a lost driver at once.",
)  # fmt: skip
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
