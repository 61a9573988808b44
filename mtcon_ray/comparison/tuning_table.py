"""Tables of equal tuning: configurations tried by each system, their cost, and chosen values."""

import pandas as pd

from mtcon_ray.comparison.row import Row, objectives
from mtcon_ray.display.presentation import NOTHING, accuracy_text, csv_text, short_paths, value_text
from mtcon_ray.display.tables import Table

NOTE = (
    "Epochs are those of all trainings: tuning, then the best configurations again if they were "
    "trained again, then the final seeds. Trial-hours are the time of all these trainings. The "
    "validation score is the one that chose the configuration; the final seeds are others."
)


def markdown(rows: list[Row]) -> str:
    """Returns a Markdown table of cost and chosen values, "" if no system was tuned."""
    if not any(row.tuned for row in rows):
        return ""
    short = short_paths(_searched(rows))
    names = ["system", "configurations", "epochs", "trial-hours", f"chosen by {objectives(rows)}"]
    names += short.values()
    table = []
    for row in rows:
        sweeps = row.tuned if row.results is None else (*row.tuned, row.results)
        epochs = [str(sum(trial.last_epoch for trial in one.trials)) for one in sweeps]
        hours = sum(trial.seconds for one in sweeps for trial in one.trials) / 3600
        winner = row.tuned[-1].winner if row.tuned else None
        chosen = winner.params if winner else {}
        cells = [
            row.title,
            str(len({trial.configuration for trial in row.tuned[0].trials}) if row.tuned else 0),
            " + ".join(epochs) or NOTHING,
            f"{hours:.2f}",
            accuracy_text(winner.value if winner else None),
            *(value_text(chosen[path]) if path in chosen else NOTHING for path in short),
        ]
        table.append(cells)
    return Table(names, table, right=range(1, len(names))).markdown() + f"\n{NOTE}\n"


def as_csv(rows: list[Row]) -> str:
    """Returns CSV with a row per training of the tuning sweeps, "" if no system was tuned.

    Columns: system, sweep, trial, seed, status, epochs, hours, value, and every searched field.
    """
    paths = _searched(rows)
    lines = [
        {
            "system": row.title, "sweep": sweep.name, "trial": trial.name, "seed": trial.seed,
            "status": trial.status.value, "epochs": trial.last_epoch,
            "hours": trial.seconds / 3600, "value": trial.value,
            **{path: trial.params.get(path) for path in paths},
        }
        for row in rows for sweep in row.tuned for trial in sweep.trials
    ]  # fmt: skip
    return csv_text(pd.DataFrame(lines)) if lines else ""


def _searched(rows: list[Row]) -> list[str]:
    """Returns the paths of all searched fields, each once."""
    sweeps = (sweep for row in rows for sweep in row.tuned)
    return list(dict.fromkeys(path for sweep in sweeps for path in sweep.spec.search.space))
