"""The command that makes all tables and figures."""

import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from experiments import reproduce
from experiments.reproduction.experiment import Experiment
from experiments.reproduction.running import plan_lines
from mtcon_ray.errors import ResourceError
from mtcon_ray.plan.local import this_machine
from tests.experiments.pretended import setting
from tests.processes import REPOSITORY, run_python
from tests.waiting import PATIENCE_SECONDS


def test_every_experiment_of_the_folder_is_in_the_report() -> None:
    files = {path.stem for path in (REPOSITORY / "experiments").glob("*_table*.py")}
    assert files <= set(reproduce.NAMES)
    assert len(set(reproduce.NAMES)) == len(reproduce.NAMES)
    assert [name for name in reproduce.NAMES if reproduce.load(name).name != name] == []


def test_the_readme_has_title_and_claim_of_each_experiment() -> None:
    text = (REPOSITORY / "experiments" / "README.md").read_text()
    rows = [
        f"| [`{each.name}`]({each.name}.py) | {each.title} | {each.claim.rstrip('.')} |"
        for each in map(reproduce.load, reproduce.NAMES)
    ]
    assert [row for row in rows if row not in text] == []


def here(*arguments: str | Path) -> int | str | None:
    """Returns the exit code of the command, run in this process."""
    with pytest.raises(SystemExit) as ended:
        reproduce.COMMAND(list(map(str, arguments)))
    return ended.value.code


def test_the_experiments_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert here() == 2
    assert "Error: give names or --all; experiments: ccn_table1, " in capsys.readouterr().err
    assert here("mscon_table3", "--all") == 2
    assert "Error: give names or --all" in capsys.readouterr().err
    assert here("table1") == 2
    assert "Error: no experiment 'table1'; experiments: " in capsys.readouterr().err


def test_what_fails_is_in_the_report_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(experiment: Experiment, *_: object) -> None:
        raise ResourceError(f"no room for {experiment.name}")

    monkeypatch.setattr(reproduce, "run", fail)
    folder = tmp_path / "reproductions" / "smoke"
    assert here("--all", "--root", tmp_path) == 1
    whole = (folder / "index.html").read_text(encoding="utf-8")
    assert [name for name in reproduce.NAMES if f"no room for {name}" not in whole] == []
    assert here("mscon_table3", "mscon_table4", "--root", tmp_path) == 1
    html = (folder / "chosen.html").read_text(encoding="utf-8")
    assert {*re.findall(r"no room for (\w+)", html)} == {"mscon_table3", "mscon_table4"}
    assert (folder / "index.html").read_text(encoding="utf-8") == whole


@pytest.mark.soak
@pytest.mark.ray
@pytest.mark.mlflow
def test_a_table_is_made_and_made_again_without_training(tmp_path: Path) -> None:
    words = ("mscon_table3", "--budget", "smoke", "--set", "tracking.offline=true")
    command = ("experiments/reproduce.py", *words, "--root", tmp_path)
    first = run_python(*command, HOME=str(tmp_path), seconds=10 * PATIENCE_SECONDS)
    folder = tmp_path / "reproductions" / "smoke"
    assert "random start" in (folder / "mscon_table3" / "table.md").read_text(encoding="utf-8")
    table = pd.read_csv(folder / "mscon_table3" / "table.csv")
    assert table["ours"].notna().all()
    assert table["paper"].notna().sum() == 4
    assert len({path.name for path in (tmp_path / "sweeps").iterdir()}) == 6
    assert first.stdout.count("trial-0000 started") == 6
    assert "started" not in run_python(*command, HOME=str(tmp_path)).stdout
    assert pd.read_csv(folder / "mscon_table3" / "table.csv").equals(table)
    assert "not judged at this budget" in (folder / "chosen.html").read_text(encoding="utf-8")


def test_a_plan_says_what_the_claims_will_detect(tmp_path: Path) -> None:
    experiment = reproduce.load("mscon_table4")
    small = ("data.num_items=400", "views.size=16", "train.batch_size=16")
    lines = plan_lines(experiment, setting(tmp_path, "small", *small), this_machine())
    assert sum(" tune " in line for line in lines) == 16
    # Over 80 items and 3 seeds: the mean of three differences, and four differences at 5 % / 4.
    shown = "\n".join(lines[-6:])
    assert "  6.40 points   MSCon above XEnt MT, mean of 3 differences: +1.43*\n" in shown
    assert re.search(r"\n  13.46 points  MSCon above XEnt MT: damage_severity \+1.47\*, dis", shown)
    assert "*: 5 of 5 printed differences are smaller" in shown
    assert "not comparable: the networks have a random start" in lines[-1]
    where = setting(tmp_path, "small", *small)
    (where.folder / "mscon_table4").mkdir(parents=True)
    # With the columns that stand for the labels, as they are written.
    claims = [(str(claim), f"{claim.label} (tilt)") for claim in experiment.claims()]
    table = pd.DataFrame([("MSCon above XEnt MT, mean of 3 differences", "a (b), c"), *claims])
    table = table.set_axis(["claim", "label"], axis=1)
    table = table.assign(paper="+1.00 points", detectable="2.00 points", verdict="undecided")
    table.to_csv(where.folder / "mscon_table4" / "claims.csv", index=False)
    assert "correction (of " in " ".join(plan_lines(experiment, where, this_machine()))
    more = replace(where, budget=replace(where.budget, seeds=4))
    assert "no such claims" in " ".join(plan_lines(experiment, more, this_machine()))
    lines = plan_lines(experiment, setting(tmp_path, "smoke", *small), this_machine())
    assert lines[-1] == "no claim is judged with 1 of at least 3 seeds"
    lines = plan_lines(experiment, setting(tmp_path, "small", only="paper"), this_machine())
    assert {"MEDIC needs medic below --paper-data" in line for line in lines} == {True}
