"""Tags, descriptions and views that MLflow's pages read, in the real store."""

import base64
import json
import zlib
from typing import TYPE_CHECKING

import pytest

from mtcon_ray.evaluation.spec import Select
from mtcon_ray.tracking import mlflow_ui
from mtcon_ray.tracking.events import Ended, Started
from mtcon_ray.tracking.provenance import FINGERPRINT

if TYPE_CHECKING:
    from tests.tracking.conftest import Sweep

LAYOUT = mlflow_ui.layout(
    "shoes-1", ["method.temperature"], ["category", "Heel height"], ["classes"], "last"
)


def test_the_view_shows_the_searched_settings_and_every_tasks_sigma() -> None:
    state = json.loads(LAYOUT)
    assert "params.`method.temperature`" in state["selectedColumns"]
    assert state["searchFilter"].startswith("tags.`mtcon.sweep` = 'shoes-1' AND ")
    sections = {section["uuid"] for section in state["compareRunSections"]}
    assert {chart["metricSectionId"] for chart in state["compareRunCharts"]} == sections
    drawn = [chart.get("selectedMetricKeys") for chart in state["compareRunCharts"]]
    assert ["sigma/category", "sigma/heel-height"] in drawn


@pytest.mark.parametrize(
    ("kinds", "select", "name", "value", "title"),
    [
        (["classes", "classes"], "last", "val/accuracy", "val/accuracy", "Validation accuracy"),
        (["classes", "set"], "last", "val/score", "val/score", "Validation mean of accuracy, mAP"),
        # MLflow sorts by a metric's last value, which is not that of the selected network.
        (["classes"], "best", "val/accuracy", "val/best", "Validation accuracy"),
    ],
)
def test_the_view_orders_by_the_trials_values(
    kinds: list[str], select: Select, name: str, value: str, title: str
) -> None:
    state = json.loads(mlflow_ui.layout("shoes-1", ["train.lr"], ["a", "b"], kinds, select))
    assert state["orderByKey"] == f"metrics.`{value}`"
    assert state["orderByKey"] in state["selectedColumns"]
    objective, parallel, *_ = state["compareRunCharts"]
    assert (objective["displayName"], objective["metricKey"]) == (title, name)
    assert parallel["selectedMetrics"] == [value]


def test_mlflows_default_columns_are_filled_from_our_tags() -> None:
    ours = {"mtcon.user": "anna", "mtcon.script": "sweep.py", "mtcon.git.commit": "abc", "x": "y"}
    assert mlflow_ui.column_tags(ours) == {
        "mlflow.user": "anna",
        "mlflow.source.name": "sweep.py",
        "mlflow.source.git.commit": "abc",
        "mlflow.source.type": "LOCAL",
    }
    assert mlflow_ui.column_tags({"mtcon.epochs": "3"}) == {}


@pytest.mark.mlflow
@pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning")
def test_descriptions_and_the_view_are_in_the_store(sweep: "Sweep") -> None:
    """The end event's description replaces the first one; its links lead to existing pages."""
    from mlflow import MlflowClient

    parent = sweep.spool()
    parent.append(Started(params={}, tags={"mtcon.user": "anna"}, note="begun", view=LAYOUT))
    trial = sweep.spool("trial-0000")
    trial.append(Started(params={}, tags={}, note="- Logs: `/log`"))
    trial.append(Ended(status="FINISHED", tags={}))
    parent.append(Ended(status="FINISHED", tags={}, note="won " * 5000))
    with sweep.sending() as sender:
        pass
    assert not sender.refused
    run, child = sweep.run(), sweep.run("trial-0000")
    note = run.data.tags[mlflow_ui.NOTE]
    assert note.endswith("won won ")
    assert len(note) <= 5000
    link = (
        f"[**Compare the trials**](#/experiments/{run.info.experiment_id}/runs?viewStateShareKey="
    )
    assert note.startswith(link)
    key = note.removeprefix(link).split("&")[0]
    experiment = MlflowClient(sweep.uri).get_experiment(run.info.experiment_id)
    kind, _, text = experiment.tags[f"mlflow.sharedViewState.{key}"].partition(";")
    assert kind == "deflate"
    assert zlib.decompress(base64.b64decode(text)).decode() == LAYOUT
    files = f"#/experiments/{run.info.experiment_id}/runs/{child.info.run_id}/artifacts"
    assert child.data.tags[mlflow_ui.NOTE] == f"- Logs: `/log`\n\n[Artifacts]({files})"
    assert run.data.tags["mlflow.user"] == "anna"


@pytest.mark.mlflow
@pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning")
def test_the_table_names_data_and_source_of_parent_and_children(sweep: "Sweep") -> None:
    """Each run has one dataset though all is sent twice; directories of the data are not sent."""
    data = {"kind": "table", "csv": "/secret/shoes.csv", "images": "/secret", "tasks": ["a"]}
    sweep.folder.mkdir(parents=True)
    (sweep.folder / "spec.yaml").write_text(json.dumps({"name": "shoes", "data": data}))
    sweep.begin(**{FINGERPRINT: "0123456789abcdef", "mtcon.script": "sweep.py"})
    sweep.begin("trial-0000")
    for _ in range(2):
        with sweep.sending() as sender:
            pass
        assert not sender.refused
        (sweep.folder / "spool" / "cursors.json").unlink()
    for name in ("parent", "trial-0000"):
        run = sweep.run(name)
        assert run.data.tags["mlflow.source.name"] == "sweep.py"
        assert run.data.tags["mlflow.source.type"] == "LOCAL"
        assert run.inputs is not None
        [found] = run.inputs.dataset_inputs
        assert (found.dataset.name, found.dataset.digest) == ("shoes", "01234567")
        assert "secret" not in str(found.to_dictionary())
