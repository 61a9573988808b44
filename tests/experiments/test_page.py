"""The report of a reproduction: every claim with its verdict, pictures inlined."""

import re
from pathlib import Path

import pandas as pd

from experiments.reproduce import load
from experiments.reproduction.cells import Cell
from experiments.reproduction.experiment import Done, Outcome, Trained, Verdict
from experiments.reproduction.files import markdown
from experiments.reproduction.page import Failure, page, write_inconsistencies
from experiments.reproduction.paper import inconsistencies
from experiments.reproduction.running import disclosures, gauge_notes
from mtcon_ray.comparison.row import Row
from mtcon_ray.display.results_table import winner_warnings
from tests.experiments.pretended import all_trained, setting, trained
from tests.recorded import plan_with, results_of, trial_of

DOCS = Path(__file__).parents[2] / "docs"


def done(root: Path, name: str, budget: str = "small") -> Done:
    where = setting(root, budget, "train.epochs=20")
    found = load(name)
    better = {Cell("zappos50k", "mtcon"): [0.9, 0.9, 0.9]}
    trained = all_trained(where, list(found.cells(where)), better)
    return Done(found, found.finish(where, trained), trained, root)


def test_a_page_has_each_claim_with_its_verdict(tmp_path: Path) -> None:
    tables = [done(tmp_path, "mscon_table3"), done(tmp_path, "mscon_table4")]
    failed = Failure(tables[0].experiment, "the disk <is> full")
    where = setting(tmp_path, "small", "train.epochs=20")
    html = page(where, [*tables, tables[0]], [failed], planned=5)
    text = " ".join(re.sub(r"<[^>]+>", " ", html.partition("<body>")[2]).split())
    assert "7 claims of the papers, none of them judged" in text
    assert "not comparable: 7. Not made yet: 1." in text
    assert "MSCon, table 3: the brand of shoes, which no training saw: the disk &lt;is&gt;" in text
    for each in tables:
        assert each.experiment.title in text
        for verdict in each.outcome.verdicts:
            assert f"{verdict.claim} {verdict.label} {verdict.answer} {verdict.paper}" in text
    assert "XEnt MT above MSCon informative (texture) not comparable +0.96 points +0.00 [" in text
    assert html.count('src="data:image/png;base64,') == 3
    assert not re.search(r'(?:src|href)="(?!data:|#)', html)
    # Systems of both tables are counted once.
    assert "use 30 systems" in text
    assert "of 24 different systems" in text
    assert text.count("synthetic images") >= 2
    assert "all train.epochs 20" in text
    for listed in inconsistencies():
        assert " ".join(listed.place.split()) in text.replace("&#39;", "'")


def test_what_differs_from_the_paper_is_disclosed(tmp_path: Path) -> None:
    where = setting(tmp_path, "small")
    classes = {"shape": 3, "texture": 6, "colour": 8, "tilt": 43}
    plan = plan_with(classes=classes, num_items={"train": 700, "test": 1234}, images_per_trial=8400)
    each = trained(where, Cell("zappos50k", "mtcon"), [0.5], plan=plan)
    disclosed, weights, far = disclosures({each.cell: each})
    assert weights.startswith("Learned weights are normalised, of mean 1. The claims are judged on")
    assert ": synthetic images, 700 train, 1,234 test. MTCon, learned weights: small, " in disclosed
    assert "random start, 16,800 views in a training. Labels and their classes: cat" in disclosed
    assert disclosed.endswith("; brand (tilt): 43, the paper's 20.")
    assert "classes: gender (colour) of UT Zappos50K (8, the paper's 4), brand (tilt) " in far


def test_a_system_that_learned_nothing_is_marked(tmp_path: Path) -> None:
    where, cell = setting(tmp_path, "small"), Cell("zappos50k", "csn")
    last = {"val/accuracy": 0.5, "loss/triplet": 0.3}
    results = results_of(where.spec_of(cell), trial_of(0, 1, last))
    (note,) = gauge_notes([Trained(cell, None, Row("x", results))])
    assert note.startswith("CSN on UT Zappos50K: the hinge loss is 0.300, and 0.2 for an ")
    assert winner_warnings(results)[0].startswith("the hinge loss is 0.300")
    weak = Verdict("MTCon above CSN", "holds", note="CSN is below the untrained encoder")
    outcome = Outcome(pd.DataFrame(), verdicts=[weak])
    html = page(where, [Done(load("mscon_table3"), outcome, {}, tmp_path)], [], planned=1)
    assert "1 that hold are over a system below the untrained encoder." in html
    assert "<td>CSN is below the untrained encoder" in html
    assert "| CSN is below the untrained encoder |" in markdown(load("mscon_table3"), outcome)


def test_the_published_inconsistencies_are_those_of_the_report(tmp_path: Path) -> None:
    write_inconsistencies(tmp_path / "written.md")
    published = DOCS / "results" / "reproduction" / "inconsistencies.md"
    assert published.read_text(encoding="utf-8") == (tmp_path / "written.md").read_text("utf-8")
