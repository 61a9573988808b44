"""Tracking's share of a training thread's time, measured in a real process."""

import json
from pathlib import Path

from tests.sweep.small_sweeps import patched_trainer

FILE = "tracking.json"

# Times all calls of the methods of tracking and of the event log on the main thread, from the first
# epoch's record to the last epoch's record. Skips nested calls and other threads.
PATCH = """
def patch(module):
    import atexit, functools, inspect, json, threading, time

    main, inside, spent, first, last = threading.main_thread(), False, 0.0, None, None

    def timed(call):
        @functools.wraps(call)
        def wrapper(*args, **named):
            nonlocal inside, spent, first, last
            if inside or threading.current_thread() is not main:
                return call(*args, **named)
            inside, begin = True, time.perf_counter()
            try:
                return call(*args, **named)
            finally:
                inside, end = False, time.perf_counter()
                spent += end - begin
                if call.__qualname__ == "EventLog.append_lines":
                    last = (end, spent)
                    first = first or last
        return wrapper

    timed_modules = ("mtcon_ray.tracking.", "mtcon_ray.records.event_log")
    for name in [name for name in sys.modules if name.startswith(timed_modules)]:
        for kind in vars(sys.modules[name]).values():
            if inspect.isclass(kind) and kind.__module__ == name:
                for method, call in [*vars(kind).items()]:
                    if inspect.isfunction(call):
                        setattr(kind, method, timed(call))

    @atexit.register
    def write():
        if first and last[0] > first[0]:
            with open({file!r}, "w") as file:
                json.dump([last[1] - first[1], last[0] - first[0]], file)
"""


def timed_tracking(folder: Path) -> str:
    """Returns a PYTHONPATH with which a training's process times its tracking."""
    return patched_trainer(folder, PATCH.replace("{file!r}", repr(str(folder / FILE))))


def time_in_tracking(folder: Path) -> tuple[float, float]:
    """Returns the seconds in tracking and all seconds, from the first epoch to the last epoch."""
    spent, seconds = json.loads((folder / FILE).read_text(encoding="utf-8"))
    return float(spent), float(seconds)
