"""Published results: their pages, their CSV files, and the claims that they judge."""

import re
from pathlib import Path

import pandas as pd
import pytest

from experiments.pieces import CONDITIONS
from mtcon_ray.comparison.comparison_spec import load_comparison
from tests.pages import DOCS, REPOSITORY

RESULTS = DOCS / "results"
COMPARISONS = sorted((REPOSITORY / "experiments").glob("compare_*.yaml"))
REPRODUCTION = (RESULTS / "reproduction.md").read_text(encoding="utf-8")
# Systems of published claims, and those that the claims of the file are about by now.
EARLIER = {"compare_methods": {"MTCon, learned weights": "MTCon, learned weights of mean 1"}}
VERDICTS = ["holds", "does not hold", "undecided", "cannot be decided here", "not comparable"]


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@pytest.mark.parametrize("file", COMPARISONS, ids=lambda file: file.name)
def test_a_comparison_s_verdicts_are_those_of_its_file_and_its_page(file: Path) -> None:
    """Every comparison is published."""
    place = f"comparisons/{file.stem.removeprefix('compare_').replace('_', '-')}/claims.csv"
    judged = pd.read_csv(RESULTS / place)
    comparison = load_comparison(file)
    assert len(comparison.specs) > 2
    (page,) = (text for text in map(read, RESULTS.glob("*.md")) if place in text)
    run = [claim for claim in comparison.claims if f"| {claim.better} | not run |" not in page]
    claims = [[claim.better, claim.than, claim.label] for claim in run]
    assert claims
    # Calibrated weights left the product. Their published results stay.
    now = judged[~judged["better"].str.contains("calibrated")].replace(EARLIER.get(file.stem, {}))
    assert now[["better", "than", "label"]].to_numpy().tolist() == claims
    told = iter(page.splitlines())
    for claim in judged.itertuples():
        start = re.escape(f"| {claim.better} above {claim.than}")
        values = f"{claim.difference:+.3f} [{claim.low:+.3f}, {claim.high:+.3f}]"
        end = re.escape(f"| {values} |") + rf".*\| {claim.verdict} \|"
        assert any(re.match(f"{start}.*{end}", line) for line in told), claim


def test_the_verdicts_on_retrieval_are_those_of_its_page() -> None:
    page, tables = read(RESULTS / "retrieval.md"), []
    for name in CONDITIONS:
        assert f"(retrieval/{name}/claims.csv)" in page
        tables.append(pd.read_csv(RESULTS / "retrieval" / name / "claims.csv"))
    for claims in zip(*(table.itertuples() for table in tables), strict=True):
        cells = [f"{c.difference.removesuffix(' points')}, {c.verdict}" for c in claims]
        assert f"\n| {claims[0].claim} | {' | '.join(cells)} |\n" in page


def test_the_report_of_the_papers_counts_its_verdicts() -> None:
    sums = dict.fromkeys(VERDICTS, 0)
    for path in sorted((RESULTS / "reproduction").glob("*/claims.csv")):
        place = rf"\(reproduction/{path.parent.name}/table\.md\)"
        (line,) = re.findall(rf"^\|.*{place}.*$", REPRODUCTION, re.M)
        found = pd.read_csv(path)["verdict"].value_counts()
        cells = [cell.strip() for cell in line.strip("|").split("|")[1:]]
        assert cells == [str(found.get(v, "")) for v in VERDICTS], path
        for verdict, count in found.items():
            sums[str(verdict)] += count
    holds, does_not, undecided, *rest = sums.values()
    text = (
        f"{holds} of {sum(sums.values())} claims hold, {does_not} do not, {undecided} are undecided"
    )
    assert f"**{text}" in REPRODUCTION
    for number, kind in zip(rest, VERDICTS[3:], strict=True):
        assert f"{number} {kind.removesuffix(' here')}" in REPRODUCTION
