"""Tables of a comparison: Markdown, CSV with every seed, a figure, the claims, and the tuning."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

import pandas as pd

from mtcon_ray.base.root_files import make_folder, write
from mtcon_ray.comparison.claims import Judged, as_csv, judged, table as claims_table
from mtcon_ray.comparison.comparison_spec import ClaimSpec
from mtcon_ray.comparison.row import Row, columns, objectives
from mtcon_ray.display import plotting, presentation as show
from mtcon_ray.display.tables import Table
from mtcon_ray.records.results import SweepResults


def markdown(rows: list[Row], claims: Iterable[ClaimSpec] = ()) -> str:
    """Returns the table as Markdown, followed by the claims, what was tuned, and notes.

    Scores are fractions: the mean over seeds with its interval. The best of each column is bold.
    """
    shown = columns(rows)
    best = {place: max(row.reading(*place).value or 0.0 for row in rows) for place in shown}
    names = ["system", "seeds", "features", objectives(rows), *shown.values()]
    table = []
    for row in rows:
        values = [t.value for t in row.finished if t.value is not None]
        cells = [
            row.title,
            str(len(row.finished)),
            ", ".join(map(str, row.features)) or show.NOTHING,
            show.accuracy_text(fmean(values)) if values else f"failed: {row.why}",
        ]
        for place in shown:
            text, value = row.score_text(*place), row.reading(*place).value
            cells.append(f"**{text}**" if value and value == best[place] else text)
        table.append(cells)
    found = judged(rows, claims)
    parts = [
        Table(names, table, right=range(1, len(names))).markdown(),
        claims_table(found).markdown() if found else "",
        tuning_markdown(rows),
        notes(rows, found) + "".join(f"**{r.title}**: {t}.\n" for r in rows for t in gauges(r)),
    ]
    return "\n".join(part for part in parts if part)


def trials_csv(sweeps: Iterable[tuple[str, SweepResults]]) -> str:
    """Returns CSV with a row per trial of each system's sweeps.

    Columns: system and sweep, then those of `SweepResults.to_frame`.
    """
    # As objects: pandas 2.2 warns if a table has a column without a value.
    tables = {(title, sweep.name): sweep.to_frame().astype(object) for title, sweep in sweeps}
    return show.csv_text(pd.concat(tables, names=["system", "sweep"]).reset_index(level=[0, 1]))


def picture(rows: list[Row]) -> bytes:
    """Draws a panel per label with each system's mean score and interval. Returns a PNG."""
    shown = columns(rows)
    with plotting.styled():
        names = [plotting.shortened(row.title, 36) for row in rows]
        height = 0.9 + 0.24 * len(rows)  # in inches
        figure, panels = plotting.panels(len(shown), height=height, columns=4)
        for i, ((place, title), axes) in enumerate(zip(shown.items(), panels, strict=True)):
            axes.set_title(plotting.shortened(title), loc="left")
            for y, row in enumerate(rows):
                seeds = [r.value for r in row.readings(*place) if r.value is not None]
                if (interval := row.interval(*place)) is not None:
                    axes.plot(interval[1:3], [y, y], "|-", color=plotting.BLUE)
                axes.plot(seeds, [y] * len(seeds), ".", color=plotting.GREY)
                if seeds:
                    axes.plot(fmean(seeds), y, "o", color=plotting.BLUE)
            axes.set_yticks(range(len(rows)), names)
            axes.tick_params(labelleft=i % 4 == 0)
            axes.set_ylim(len(rows) - 0.5, -0.5)
        label = "fraction, mean over seeds, 95 % interval; dots are seeds"
        figure.supxlabel(label, fontsize="medium")
        return plotting.png(figure)


def write_tables(folder: Path, rows: list[Row], claims: Sequence[ClaimSpec] = ()) -> None:
    """Writes the results so far: table.md, table.csv and table.png.

    Writes claims.csv if there are claims, and tuning.csv if systems were tuned.
    """
    make_folder(folder)
    write(folder / "table.md", markdown(rows, claims))
    if claims:
        write(folder / "claims.csv", as_csv(judged(rows, claims)))
    # Without the empty table of a sweep without trials, which makes floats of whole numbers.
    final = [(row.title, row.results) for row in rows if row.results and row.results.trials]
    tuned = [(row.title, sweep) for row in rows for sweep in row.tuned if sweep.trials]
    for name, sweeps in {"table.csv": final, "tuning.csv": tuned}.items():
        if sweeps:
            write(folder / name, trials_csv(sweeps))
    if columns(rows) and any(row.finished for row in rows):
        write(folder / "table.png", picture(rows))


def notes(rows: list[Row], claims: Sequence[Judged] = ()) -> str:
    """Returns sentences about the table's numbers, "" if nothing needs an explanation."""
    cells = [row.interval(*place) for row in rows for place in columns(rows)]
    found = [*filter(None, cells), *(each.difference for each in claims if each.difference)]
    lines = []
    if found:
        lines.append("In square brackets: 95 % interval over seeds and test items.")
    if tested := sum(each.p is not None for each in claims):
        lines.append(
            "p (Holm): of the difference against the claim's margin, two-sided, corrected for the "
            f"number of tested claims ({tested}). Intervals are not corrected."
        )
    if not all(each.over_seeds for each in found):
        lines.append(show.ONE_SEED_NOTE)
    return "\n".join(lines) + "\n" if lines else ""


def gauges(row: Row) -> list[str]:
    """Returns the warnings about a system with gauges that show no learning, by their means."""
    each = [t.last_metrics for t in row.finished]
    shared = set.intersection(*map(set, each)) if each else set()
    means = {name: fmean(values[name] for values in each) for name in shared}
    margin = getattr(row.results.spec.method, "margin", None) if row.results else None
    return show.gauge_warnings(means, margin)


def tuning_markdown(rows: list[Row]) -> str:
    """Returns a Markdown table of cost and chosen values, "" if no system was tuned."""
    if not any(row.tuned for row in rows):
        return ""
    tuned = (sweep for row in rows for sweep in row.tuned)
    short = show.short_paths(dict.fromkeys(p for sweep in tuned for p in sweep.spec.search.space))
    names = ["system", "configurations", "epochs", "trial-hours", f"chosen by {objectives(rows)}"]
    names += short.values()
    table = []
    for row in rows:
        sweeps = row.tuned if row.results is None else (*row.tuned, row.results)
        epochs = [str(sum(trial.last_epoch for trial in one.trials)) for one in sweeps]
        hours = sum(trial.seconds for one in sweeps for trial in one.trials) / 3600
        best = row.tuned[-1].configurations()[:1] if row.tuned else []
        chosen = best[0].params if best else {}
        cells = [
            row.title,
            str(len({trial.configuration for trial in row.tuned[0].trials}) if row.tuned else 0),
            " + ".join(epochs) or show.NOTHING,
            f"{hours:.2f}",
            show.accuracy_text(best[0].value if best else None),
            *(show.value_text(chosen[path]) if path in chosen else show.NOTHING for path in short),
        ]
        table.append(cells)
    return Table(names, table, right=range(1, len(names))).markdown()
