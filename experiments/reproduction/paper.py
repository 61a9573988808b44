"""Facts of the papers: all values printed in tables, and the inconsistencies among them."""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

HERE = Path(__file__).parent


@dataclass(frozen=True)
class PaperValue:
    """A printed value and its deviation, in percent. `deviation` is None if it is not printed.

    `data` is a key of `data.DATA_SETS`, `label` a label of it. `is_held_out` is True for a label
    held out from training.
    """

    paper: str
    table: int
    data: str
    is_held_out: bool
    method: str
    label: str
    metric: str
    value: float
    deviation: float | None


@dataclass(frozen=True)
class Inconsistency:
    """A contradiction in a paper, between papers or with their code, and our choice."""

    papers: tuple[str, ...]
    place: str
    text: str
    choice: str


@cache
def paper_values() -> tuple[PaperValue, ...]:
    """Returns all printed values, in the order of papers, tables and rows."""
    lines = (HERE / "paper_values.csv").read_text(encoding="utf-8").splitlines()
    return tuple(
        PaperValue(
            paper=row["paper"],
            table=int(row["table"]),
            data=row["dataset"],
            is_held_out=row["setting"] == "ood",
            method=row["method"],
            label=row["task"],
            metric=row["metric"],
            value=float(row["value"]),
            deviation=float(row["std"]) if row["std"] else None,
        )
        for row in csv.DictReader(line for line in lines if not line.startswith("#"))
    )


def values_of(paper: str, table: int) -> tuple[PaperValue, ...]:
    """Returns the values of a table. Raises ValueError if the paper has no such table."""
    found = tuple(v for v in paper_values() if (v.paper, v.table) == (paper, table))
    if not found:
        raise ValueError(f"paper_values.csv has no table {table} of {paper}")
    return found


def inconsistencies() -> list[Inconsistency]:
    """Returns the papers' inconsistencies that affect a reproduction."""
    raw = yaml.safe_load((HERE / "inconsistencies.yaml").read_text(encoding="utf-8"))
    return [Inconsistency(tuple(i["papers"]), i["place"], i["text"], i["choice"]) for i in raw]
