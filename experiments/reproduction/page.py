"""Report of a reproduction: a self-contained HTML page with every claim and its verdict."""

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pandas as pd

from experiments.reproduction.cells import Cell, Setting, unique
from experiments.reproduction.data import DATA_SETS, MissingImagesError
from experiments.reproduction.experiment import Answer, Author, Done, Experiment, Verdict
from experiments.reproduction.files import cell_text, sentence, verdicts_table, without_empty
from experiments.reproduction.paper import inconsistencies
from experiments.reproduction.running import disclosed, first_trained
from mtcon_ray.data.disk import whole_file
from mtcon_ray.display.build import fill
from mtcon_ray.version import __version__

ANSWERS: tuple[Answer, ...] = get_args(Answer)
STATISTICS = (
    "Each claim is tested against its margin, which is zero unless the claim names one: a "
    "difference of scores by a paired bootstrap over test items and seeds; what is measured once "
    "per seed, by Student's t. What rises or falls is tested by the change of a fitted line. A "
    "claim holds, or does not hold, if p is at most 5 % after Holm's correction for the claims of "
    "its table or figure, and is undecided otherwise. Three seeds estimate their spread poorly: p "
    "has the heavier tails of Student's t, and a claim's variance over seeds is at least the mean "
    "one of the like claims of its table or figure. So p can be above 5 % where the interval, "
    "which is not corrected, leaves out zero, and a result that is in two tables can be decided in"
    " one of them alone. The simulation of theorem 1 has no p. Not testable here: images are "
    "missing or a training failed. Not judged at this budget: fewer than three seeds. Claims about"
    " means, and all that are no difference of two scores, are corrected apart from those about "
    "single labels. Detectable: the difference that the test finds with 80 % power; of equal "
    "accuracies it is the distance from the margin. Cannot be decided here: undecided, and the "
    "paper's difference is smaller than that. Not comparable: about a held-out label, by networks "
    "that start from random weights, where the papers' start from ImageNet; or about weights of "
    "labels with other numbers of classes. Claims of this project are in no paper, and counted "
    "apart."
)


@dataclass(frozen=True)
class Failure:
    """An experiment that could not run, and the reason."""

    experiment: Experiment
    reason: str


@dataclass(frozen=True)
class Frame:
    """A table of the page: headings, number headings, and rows of (heading, text)."""

    columns: tuple[str, ...]
    numbers: frozenset[str]
    rows: list[list[tuple[str, str]]]


def write_page(
    path: Path, setting: Setting, done: Sequence[Done], failures: Sequence[Failure], planned: int
) -> None:
    """Writes the page, atomically. `planned` is the number of requested experiments."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with whole_file(path) as file:
        file.write(page(setting, done, failures, planned).encode(errors="replace"))


def write_inconsistencies(path: Path) -> None:
    """Writes the papers' inconsistencies as a list in Markdown."""
    lines = [
        "# Inconsistencies of the papers\n",
        "Places where the papers contradict themselves, each other or their code, and the choice "
        "made here.\n",
    ]
    for each in inconsistencies():
        where = f"**{', '.join(each.papers)}: {each.place}.**"
        lines.append(f"- {where} {each.text} *Chosen: {each.choice}.*")
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")


def page(setting: Setting, done: Sequence[Done], failures: Sequence[Failure], planned: int) -> str:
    """Returns the page as HTML."""
    verdicts = [verdict for each in done for verdict in each.outcome.verdicts]
    counts = _counts(verdicts)
    left = planned - len(done) - len(failures)
    cells = unique(cell for each in done for cell in each.trained)
    return fill(
        Path(__file__).with_name("page.html").read_text(encoding="utf-8"),
        name=setting.name,
        headline=_headline(counts),
        verdict=_answers(verdicts) + (f" Not made yet: {left}." if left else ""),
        failures=failures,
        facts=list(_facts(setting, done)),
        answers=ANSWERS,
        experiments=[_section(each) for each in done],
        statistics=STATISTICS,
        inconsistencies=_frame(
            pd.DataFrame(
                [(", ".join(i.papers), i.place, i.text, i.choice) for i in inconsistencies()],
                columns=["papers", "place", "contradiction", "choice made here"],
            )
        ),
        images=_frame(_images(setting, cells, done)),
        settings=_frame(_settings(setting)),
        provenance=f"Made by mtcon-ray {__version__}. Each training has a report of its own below "
        f"{setting.root / 'sweeps'}.",
    )


def _counts(verdicts: Sequence[Verdict], author: Author = "paper") -> Counter[Answer]:
    return Counter(verdict.answer for verdict in verdicts if verdict.author == author)


def _answers(verdicts: Sequence[Verdict]) -> str:
    """Returns the number of claims with each answer, for the papers and for this project."""
    shown = []
    headings: dict[Author, str] = {"paper": "", "this project": "Claims of this project: "}
    for author, heading in headings.items():
        counts = _counts(verdicts, author)
        texts = [f"{answer}: {counts[answer]}" for answer in ANSWERS if counts[answer]]
        shown += [heading + "; ".join(texts) + "."] if texts else []
    held = (v for v in verdicts if v.author == "paper" and v.answer == "holds")
    weak = sum("untrained encoder" in v.note for v in held)
    if weak:
        shown.insert(1, f"{weak} that hold are over a system below the untrained encoder.")
    return " ".join(shown)


def _headline(counts: Counter[Answer]) -> str:
    claims = f"{counts.total():,} claim{'s' * (counts.total() != 1)} of the papers"
    judged = sum(counts[answer] for answer in ("holds", "does not hold", "undecided"))
    return f"{counts['holds']} of {claims} hold" if judged else f"{claims}, none of them judged"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + "s" * (number != 1)


def _facts(setting: Setting, done: Sequence[Done]) -> Iterator[tuple[str, str, str]]:
    """Yields name, value and explanation of each key fact."""
    # By sweep, because cells with different own_data share a training on stand-ins.
    trained = {found.row.title: found for each in done for found in each.trained.values()}
    trainings = sum(len(found.row.finished) for found in trained.values())
    failed = sum(not found.finished for found in trained.values())
    used = sum(len(each.trained) for each in done)
    yield "Budget", setting.budget.name, setting.budget.title
    yield "Tables and figures", str(len(done)), f"use {_counted(used, 'system')}"
    without = f", {failed} of them without a result" if failed else ""
    yield "Trainings", f"{trainings:,}", f"of {_counted(len(trained), 'different system')}{without}"


def _section(done: Done) -> dict[str, Any]:
    """Returns the content of an experiment's section."""
    outcome = done.outcome
    counts = _counts(outcome.verdicts)
    return {
        "name": done.experiment.name,
        "title": done.experiment.title,
        "claim": sentence(done.experiment.claim),
        "counts": [counts[answer] or "" for answer in ANSWERS],
        "pictures": [
            {"caption": caption, "uri": f"data:image/png;base64,{b64encode(png).decode()}"}
            for caption, png in outcome.pictures.items()
        ],
        "verdicts": _frame(without_empty(verdicts_table(outcome.verdicts))),
        "table": _frame(outcome.shown),
        "notes": outcome.notes,
    }


def _frame(table: pd.DataFrame) -> Frame:
    numbers = frozenset(table.select_dtypes("number").columns)
    columns = tuple(map(str, table.columns))
    rows = [
        list(zip(columns, map(cell_text, row), strict=True))
        for row in table.itertuples(index=False)
    ]
    return Frame(columns, numbers, rows)


def _images(setting: Setting, cells: Sequence[Cell], done: Sequence[Done]) -> pd.DataFrame:
    """Returns the images and networks used for each data set of the papers."""
    rows = []
    trained = [t for each in done for t in each.trained.values()]
    for name in dict.fromkeys(cell.data for cell in cells):
        data_set = DATA_SETS[name]
        try:
            source = setting.source(name)
        except MissingImagesError as error:
            rows.append((data_set.title, f"none: {error}", "", "", ""))
        else:
            some = first_trained(trained, name)
            rows.append((data_set.title, source.title, *disclosed(source, data_set, some)))
    columns = ["data set", "images used", "items", "network, views in a training"]
    return pd.DataFrame(rows, columns=[*columns, "labels (their columns), classes"])


def _settings(setting: Setting) -> pd.DataFrame:
    """Returns the budget's fields, by family of systems."""
    budget = setting.budget
    families: Mapping[str, Mapping[str, Any]] = {"all": budget.base, **budget.families}
    rows = [
        (family, path, value if isinstance(value, str) else json.dumps(value))
        for family, values in families.items()
        for path, value in values.items()
    ]
    for override in setting.overrides:
        path, _, value = override.partition("=")
        rows.append(("all", path, value))
    return pd.DataFrame(rows, columns=["systems", "field", "value"])
