"""Files of an experiment: its table as CSV and Markdown, its pictures, and its verdicts."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from experiments.reproduction.experiment import Experiment, Outcome, Verdict

# Heading of each field of a verdict, in the order of the table.
VERDICT_COLUMNS = {
    "claim": "claim",
    "label": "label",
    "answer": "verdict",
    "paper": "paper",
    "ours": "ours",
    "detectable": "detectable",
    "p": "p (Holm)",
    "note": "note",
    "why": "reason",
    "author": "claimed by",
}


def write(folder: Path, experiment: Experiment, outcome: Outcome) -> None:
    """Writes table.csv, table.md, claims.csv and a PNG per picture into a folder."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    outcome.table.to_csv(folder / "table.csv", index=False)
    verdicts_table(outcome.verdicts).to_csv(folder / "claims.csv", index=False)
    (folder / "table.md").write_text(markdown(experiment, outcome), encoding="utf-8")
    for caption, png in outcome.pictures.items():
        (folder / picture_file(caption)).write_bytes(png)


def picture_file(caption: str) -> str:
    """Returns the file name of a picture.

    >>> picture_file("Brand, top-1 (%)")
    'brand-top-1.png'
    """
    return re.sub(r"[^a-z0-9]+", "-", caption.lower()).strip("-")[:60] + ".png"


def verdicts_table(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """Returns the verdicts as a table with VERDICT_COLUMNS."""
    table = pd.DataFrame(map(asdict, verdicts), columns=list(VERDICT_COLUMNS))
    return table.rename(columns=VERDICT_COLUMNS)


def without_empty(table: pd.DataFrame) -> pd.DataFrame:
    """Returns the table without columns of "" in all rows."""
    empty = {"", "paper"}  # a claim's author, if all authors are the paper
    return table[[column for column in table.columns if not empty.issuperset(table[column])]]


def sentence(text: str) -> str:
    """Returns the text with a capital letter.

    >>> sentence("larger batches give higher accuracy.")
    'Larger batches give higher accuracy.'
    """
    return text[:1].upper() + text[1:]


def markdown(experiment: Experiment, outcome: Outcome) -> str:
    """Returns pictures, verdicts, table and notes as Markdown, in the order of the report."""
    parts = [f"# {experiment.title}", sentence(experiment.claim)]
    parts += [f"![{caption}]({picture_file(caption)})" for caption in outcome.pictures]
    if outcome.verdicts:
        shown = without_empty(verdicts_table(outcome.verdicts))
        parts += ["## Claims", markdown_table(shown), "## Values"]
    parts += [markdown_table(outcome.shown), *outcome.notes]
    return "\n\n".join(part for part in parts if part) + "\n"


def markdown_table(table: pd.DataFrame) -> str:
    """Returns a table as Markdown, missing cells empty and numbers with two decimals."""
    rows = [list(table.columns), ["---"] * len(table.columns)]
    rows += [[cell_text(value) for value in row] for row in table.itertuples(index=False)]
    return "\n".join(
        "| " + " | ".join(" / ".join(cell.replace("|", "/").splitlines()) for cell in row) + " |"
        for row in rows
    )


def cell_text(value: object) -> str:
    """Returns a cell of a table: "" without a value, numbers with two decimals.

    >>> cell_text(float("nan")), cell_text(3), cell_text(1 / 3), cell_text("MTCon")
    ('', '3', '0.33', 'MTCon')
    """
    if value is None or (isinstance(value, float) and value != value):
        return ""
    return f"{value:.2f}" if isinstance(value, float) else str(value)
