"""Sweeps of a comparison in processes of their own: how many, and what becomes of their errors."""

import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from mtcon_ray import plugins
from mtcon_ray.capacity import ClusterView, NodeKind
from mtcon_ray.comparison.drivers import MAX_DRIVERS, Drivers, drivers_at_a_time
from mtcon_ray.comparison.spec import Comparison
from mtcon_ray.comparison.tuning import Tuning
from mtcon_ray.errors import MtconError
from mtcon_ray.signals import Interrupted
from mtcon_ray.spec import RunSpec, parse_spec
from tests.waiting import wait_until


def spec(name: str, repeats: int = 1, max_concurrent: int | None = None) -> RunSpec:
    search = {"sampler": "grid", "repeats": repeats, "max_concurrent": max_concurrent}
    return parse_spec({"name": name, "search": search})


def comparison(repeats: int, systems: int = 20, max_concurrent: int | None = None) -> Comparison:
    specs = {f"s{i}": spec(f"s{i}", repeats, max_concurrent) for i in range(systems)}
    return Comparison("few", specs)


def cluster(cpus: float, count: int | None = 1, where: str = "10.0.0.1:6379") -> ClusterView:
    return ClusterView(where, (NodeKind("node", cpus, 0, count),))


@pytest.mark.parametrize(
    ("view", "repeats", "systems", "expected"),
    [
        (cluster(16, where="local"), 1, 20, 1),
        (cluster(4), 1, 20, 4),
        (cluster(4), 2, 20, 2),
        (cluster(4), 3, 20, 1),
        (cluster(1), 3, 20, 1),
        (cluster(64), 1, 20, MAX_DRIVERS),
        (cluster(64), 1, 3, 3),
        (cluster(4, count=None), 3, 20, MAX_DRIVERS),
    ],
)
def test_as_many_systems_as_have_room_for_all_their_seeds(
    view: ClusterView, repeats: int, systems: int, expected: int
) -> None:
    assert drivers_at_a_time(comparison(repeats, systems), view) == expected


def test_a_system_needs_room_for_its_trials_at_a_time() -> None:
    """The stage with the most of them decides."""
    few = comparison(6, max_concurrent=2)
    assert drivers_at_a_time(few, cluster(6)) == 3
    more = replace(few, tuning={"s1": Tuning(spec("t", 3), None)})
    assert drivers_at_a_time(more, cluster(6)) == 2


def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> Drivers:
    """Returns drivers whose program is a script with this code, which gets the arguments."""
    script = tmp_path / "script"
    script.write_text(f"#!{sys.executable}\nimport os, signal, sys, time\n{code}\n")
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))
    return Drivers(tmp_path / "root", tmp_path / "drivers", lambda text: None)


def test_a_driver_gets_the_consent_to_plugins_and_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "print('error:', os.environ.get('PYTHONPATH'), '--allow-plugins' in sys.argv); sys.exit(2)"
    )
    drivers = program(tmp_path, monkeypatch, code)
    monkeypatch.setenv("PYTHONPATH", "given")
    with pytest.raises(MtconError, match=r"^given False$"):
        drivers.train(spec("a"), "a")
    monkeypatch.setattr(plugins, "_consent", True)
    monkeypatch.setattr(plugins, "_folders", ["beside"])
    with pytest.raises(MtconError, match=r"^given:beside True$"):
        drivers.train(spec("a"), "a")


def test_the_error_of_a_driver_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "print('a line'); print('error: no room for ' + sys.argv[9], file=sys.stderr)\n"
    drivers = program(tmp_path, monkeypatch, code + "sys.exit(2)")
    assert not drivers.have_run
    with pytest.raises(MtconError, match=r"^no room for few-a$"):
        drivers.train(spec("few-a"), "A")
    assert drivers.have_run
    assert "a line" in (tmp_path / "drivers" / "few-a.log").read_text()


def test_a_killed_driver_names_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drivers = program(tmp_path, monkeypatch, "os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(MtconError, match=r"ended with code -9: .*few-a\.log$"):
        drivers.train(spec("few-a"), "A")


def test_a_stop_reaches_running_drivers_once_and_no_other_one_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "signals"
    code = f"""
def note(number, frame):
    open({str(log)!r}, "a").write(f"{{number}} ")
    sys.exit(130)
signal.signal(signal.SIGTERM, note)
open({str(tmp_path / "ready")!r}, "w").close()
time.sleep(60)
"""
    drivers = program(tmp_path, monkeypatch, code)
    raised: list[BaseException] = []

    def train() -> None:
        with pytest.raises(Interrupted, match=r"stopped by SIGINT; .* repeat the command") as error:
            drivers.train(spec("few-a"), "A")
        raised.append(error.value)

    thread = threading.Thread(target=train)
    thread.start()
    wait_until((tmp_path / "ready").exists, "driver")
    begun = time.monotonic()
    drivers.stop("SIGINT")
    thread.join(30)
    assert raised
    assert time.monotonic() - begun < 30
    assert log.read_text() == f"{int(signal.SIGTERM)} "
    with pytest.raises(Interrupted):
        drivers.train(spec("few-b"), "B")
    assert not (tmp_path / "drivers" / "few-b.log").read_text()
