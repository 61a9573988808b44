"""A comparison's table: Markdown to commit, CSV with every seed, a picture."""

import csv
import io
import math
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from mtcon_ray import metrics
from mtcon_ray.report import drawing
from mtcon_ray.report.text import accuracy_text, label_title
from mtcon_ray.results import SweepResults, TrialResult


@dataclass(frozen=True)
class Row:
    """One system: its sweep, or why there is none."""

    title: str
    results: SweepResults | None
    reason: str | None = None

    @property
    def finished(self) -> list[TrialResult]:
        """Its finished trainings, one per seed."""
        trials = self.results.trials if self.results else ()
        return [t for t in trials if t.status == "FINISHED" and t.full_budget]

    @property
    def why(self) -> str:
        """Why nothing has finished."""
        trials = self.results.trials if self.results else ()
        reasons = [trial.reason for trial in trials if trial.reason]
        return self.reason or next(iter(reasons), "unfinished")

    def readings(self, split: str, label: str) -> list[metrics.Reading]:
        """A label's score and its bootstrap deviation, by seed."""
        name = metrics.slug(label)
        return [metrics.reading(t.reports[-1][1], split, name) for t in self.finished]

    def reading(self, split: str, label: str) -> metrics.Reading:
        """Mean over seeds of a label's score, and of its bootstrap deviation."""
        found = self.readings(split, label)
        values = [reading.value for reading in found if reading.value is not None]
        stds = [reading.std for reading in found if reading.std is not None]
        return metrics.Reading(fmean(values) if values else None, fmean(stds) if stds else None)


def columns(rows: list[Row]) -> dict[tuple[str, str], str]:
    """Split and label to heading: the tasks on test, then what was held out."""
    found: dict[tuple[str, str], str] = {}
    for spec in (row.results.spec for row in rows if row.results):
        for split, labels in (("test", spec.data.tasks), ("heldout", spec.data.held_out)):
            for label in labels:
                held_out = ", held out" if split == "heldout" else ""
                found.setdefault((split, label), label_title(spec, label) + held_out)
    return found


def markdown(rows: list[Row]) -> str:
    """Fractions: mean over seeds ± mean bootstrap deviation; the best of a column is bold."""
    shown = columns(rows)
    best = {place: _best(rows, place) for place in shown}
    lines = [f"| system | seeds | {_objectives(rows)} | " + " | ".join(shown.values()) + " |"]
    lines.append("| --- |" + " ---: |" * (len(shown) + 2))
    for row in rows:
        cells = [row.title, str(len(row.finished))]
        if not row.finished:
            reason = row.why.splitlines()[0].replace("|", "/")
            cells += [f"failed: {reason}", *("—" for _ in shown)]
        else:
            cells.append(accuracy_text(fmean(t.value for t in row.finished if t.value is not None)))
            for split, label in shown:
                value, std = row.reading(split, label)
                text = accuracy_text(value, std)
                is_best = value is not None and value == best[split, label]
                cells.append(f"**{text}**" if is_best else text)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def every_seed(rows: list[Row]) -> str:
    """CSV: system, seed, metric, value of each training's last epoch."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["system", "seed", "metric", "value"])
    for row in rows:
        for trial in row.finished:
            for name, value in sorted(trial.reports[-1][1].items()):
                writer.writerow([row.title, trial.seed, name, repr(value)])
    return text.getvalue()


def picture(rows: list[Row]) -> bytes:
    """One panel per label: every system's score with its bootstrap deviation, seeds as dots."""
    shown = columns(rows)
    with drawing.styled():
        across = min(4, len(shown))
        height = 0.9 + 0.24 * len(rows)
        figure, panels = drawing.panels(len(shown), height=height, columns=across)
        for i, ((split, label), axes) in enumerate(zip(shown, panels, strict=True)):
            axes.set_title(drawing.shortened(shown[split, label]), loc="left")
            for place, row in enumerate(rows):
                value, std = row.reading(split, label)
                if value is None:
                    continue
                axes.errorbar(value, place, xerr=std, fmt="o", color=drawing.BLUE, capsize=3)
                values = [reading.value for reading in row.readings(split, label)]
                seeds = [v for v in values if v is not None]
                if len(seeds) > 1:
                    axes.plot(seeds, [place] * len(seeds), ".", color=drawing.GREY, zorder=3)
            axes.set_yticks(range(len(rows)), [drawing.shortened(row.title) for row in rows])
            axes.tick_params(labelleft=i % across == 0)
            axes.set_ylim(len(rows) - 0.5, -0.5)
        figure.supxlabel("fraction ± bootstrap deviation; dots are seeds", fontsize="medium")
        return drawing.png(figure)


def write_tables(folder: Path, rows: list[Row]) -> None:
    """table.md, table.csv and table.png in the folder, from what there is so far."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / "table.md").write_text(markdown(rows), encoding="utf-8")
    (folder / "table.csv").write_text(every_seed(rows), encoding="utf-8")
    if any(row.finished for row in rows):
        (folder / "table.png").write_bytes(picture(rows))


def _objectives(rows: list[Row]) -> str:
    """Returns the name of the systems' objective; several if their tasks are of other kinds."""
    found = [row.results.spec.data for row in rows if row.results]
    names = [metrics.objective_name(map(data.kind_of, data.tasks)) for data in found]
    return ", ".join(sorted(set(names))) or metrics.MEAN_ACCURACY


def _best(rows: list[Row], place: tuple[str, str]) -> float:
    values = [row.reading(*place).value for row in rows]
    return max((v for v in values if v is not None), default=math.nan)
