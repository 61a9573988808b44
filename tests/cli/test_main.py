"""Exit codes and messages of the commands."""

import errno
import json
import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from mtcon_ray.base.signals import Interrupted
from mtcon_ray.cli import options
from mtcon_ray.cli.main import COMMANDS, Script, command_named
from mtcon_ray.display.plan_text import plan_lines
from mtcon_ray.errors import MtconError, SpecError
from mtcon_ray.plan.plan import Plan
from mtcon_ray.spec.run_spec import RunSpec, load_spec
from tests.cli.conftest import Invoke, accepted, refused

ELSEWHERE = "~no-such-user/x"


def failing(error: BaseException) -> Script:
    """Returns a command that raises `error`."""

    @options.verbosity
    @click.command(cls=Script)
    def fail() -> None:
        raise error

    return fail


ERRORS = [
    (SpecError("train.lr must be above 0"), 2, "error: train.lr must be above 0"),
    (MtconError("no server answers"), 1, "error: no server answers"),
    (MtconError("none at http://u:pw@head"), 1, "error: none at http://u:***@head\n"),
    (Interrupted("stopped by SIGTERM"), 130, "error: stopped by SIGTERM"),
    (KeyboardInterrupt(), 130, "stopped"),
    (click.UsageError("no such option"), 2, "Error: no such option"),
    (OSError(errno.EACCES, "no permission", "/x/y"), 1, "error: cannot use the file /x/y: no"),
    (OSError(errno.EROFS, "Read-only", "/x/lock"), 1, "error: cannot write /x/lock: Read-only"),
    (BrokenPipeError(), 1, ""),
]


@pytest.mark.parametrize(("error", "code", "message"), ERRORS)
def test_an_error_has_its_code_and_no_trace(error: BaseException, code: int, message: str) -> None:
    result = CliRunner().invoke(failing(error))
    assert result.exit_code == code
    assert message in result.stderr
    assert not re.search("Traceback|unexpected", result.output)


def test_a_bug_is_told_with_its_trace_and_without_secrets() -> None:
    """With -v any other error has its trace, too."""
    error = RuntimeError("cannot reach postgresql://me:hunter2@host/db")
    result = CliRunner().invoke(failing(error))
    assert result.exit_code == 1
    *trace, last = result.stderr.splitlines()
    assert last == "error: unexpected RuntimeError: cannot reach postgresql://me:***@host/db"
    assert trace[0].startswith("Traceback")
    assert "hunter2" not in result.output
    assert "Traceback" in CliRunner().invoke(failing(SpecError("wrong")), ["-v"]).stderr


@pytest.mark.parametrize(
    ("words", "verbosity"), [("-q look", -1), ("look -q", -1), ("look", 0), ("-v look -v", 2)]
)
def test_verbosity_is_taken_before_and_after_the_command(words: str, verbosity: int) -> None:
    group = options.verbosity(click.Group(callback=lambda: None))

    @group.command()
    @options.verbosity
    def look() -> None:
        assert options.session().verbosity == verbosity

    done = CliRunner().invoke(group, words.split())
    assert done.exit_code == 0, done.output


def test_validate_accepts_and_names_what_is_wrong(invoke: Invoke, spec: Path) -> None:
    good = accepted("validate", spec)
    assert good.stderr.startswith("warning: val/accuracy must have a standard error of at most")
    assert good.stderr.count("\n") == 1
    assert ": 3 trials of 2 epochs" in good.stdout
    told = "train.lrr: unknown key; did you mean 'lr'?"
    assert told in refused("validate", spec, "--set", "train.lrr=1")
    assert invoke("validate", spec, "-q").stdout == ""


def test_schema_describes_every_method(invoke: Invoke) -> None:
    assert json.loads(invoke("schema").stdout) == RunSpec.model_json_schema()


def test_plan_prints_the_plan_and_its_json(invoke: Invoke, spec: Path, tmp_path: Path) -> None:
    text = accepted("plan", spec, "--cluster", "local")
    assert "trials          3 configurations\n" in text.stdout
    assert "1 worker with 1 CPU, on local" in text.stdout
    assert "rate unknown" in text.stdout
    assert "temperature=0.5" in text.stdout
    plan = json.loads(invoke("plan", spec, "--cluster", "local", "--json").stdout)
    assert plan["num_trials"] == 3
    assert plan["first_configurations"] == [{"method.temperature": t} for t in (0.1, 0.5, 1.0)]
    assert not (tmp_path / "mtcon-ray").exists()


def test_plan_times_the_exchange_at_a_bandwidth(invoke: Invoke, spec: Path) -> None:
    two = ("plan", spec, "--cluster", "local", "--set", "resources.workers=2", "--bandwidth")
    found = json.loads(invoke(*two, 2, "--json").stdout)["exchange"]
    assert found["seconds"] == found["sent"] / 2e9 > 0
    assert "must be above 0" in refused(*two, "nan")
    assert "exchange nothing" in refused("plan", spec, "--bandwidth", 1)
    assert "exchange nothing" in refused(*two, 2, "--set", "method=none", "--set", "search={}")


@pytest.mark.slow
def test_calibration_gives_device_hours(invoke: Invoke, spec: Path) -> None:
    result = invoke("plan", spec, "--cluster", "local", "--calibrate", "--json")
    assert result.exit_code == 0, result.stderr
    plan = json.loads(result.stdout)
    assert 0 < plan["wall_hours"] <= plan["device_hours"] < 1
    assert plan["probe_seconds"] > 0
    text = "\n".join(plan_lines(load_spec(spec), Plan.model_validate(plan)))
    assert re.search(r"measured here +[\d,]+ images a second, .* a probe \d+\.\d\d s", text)
    assert re.search(r"wall clock +\d+:\d\d, and a minute", text)


def test_nothing_there_is_said_once(invoke: Invoke, tmp_path: Path) -> None:
    assert f"nothing under {tmp_path / 'mtcon-ray'} yet" in invoke("list").stdout
    assert json.loads(invoke("list", "--json").stdout) == []
    for command in ("status", "best", "report", "audit", "clean"):
        assert "no sweep 'shoes-1'" in refused(command, "shoes-1")


def test_commands_are_completed(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_MTCON_RAY_COMPLETE", "fish_complete")
    monkeypatch.setenv("COMP_WORDS", "mtcon-ray st")
    monkeypatch.setenv("COMP_CWORD", "st")
    assert "status" in invoke().stdout


def test_commands_have_whole_sentences(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = invoke("--help").stdout.partition("Commands:\n")[2].splitlines()
    assert len(lines) == len(COMMANDS)
    for name, (_, text) in COMMANDS.items():
        assert command_named(name).get_short_help_str(limit=80) == text
    assert [line for line in lines if not line.endswith(".") or line.endswith("...")] == []


@pytest.mark.parametrize(
    "line",
    [
        *("list --root {}", "init {} images", "init labels.csv {}", "init {}.tar"),
        "prepare ucmerced --root {}",
    ],
)
def test_the_home_of_an_unknown_user_is_told(line: str) -> None:
    assert f"the home folder in '{ELSEWHERE}" in refused(*line.format(ELSEWHERE).split())


@pytest.mark.parametrize("command", [["list"], ["validate", "/x.yaml"]])
def test_a_working_directory_that_is_gone_is_told_before_anything_else(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert refused(*command).startswith("error: the working directory was removed or moved")
