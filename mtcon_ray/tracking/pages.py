"""What MLflow's pages show of our runs: its own tags, a description, a saved view.

A view is a set of columns and charts under an experiment's tag, opened by an address that names
it; MLflow's UI writes the same tag for "share". Names and fields are those of its page's state.
"""

import base64
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mtcon_ray import metrics
from mtcon_ray.evaluation.spec import Select

NOTE = "mlflow.note.content"
VIEW = "mlflow.sharedViewState."
# Ours, and what MLflow's columns "User", "Source" and "Version" read.
COLUMNS = {
    "mtcon.user": "mlflow.user",
    "mtcon.script": "mlflow.source.name",
    "mtcon.git.commit": "mlflow.source.git.commit",
}
MAX_NOTE = 4500  # characters; with the link it stays below what every server takes
CHART_RUNS = 20  # shown in a chart at a time


def column_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """MLflow's own tags for what a sweep's say, so that its runs' default columns are filled."""
    shown = {theirs: tags[ours] for ours, theirs in COLUMNS.items() if ours in tags}
    return shown | ({"mlflow.source.type": "LOCAL"} if "mlflow.source.name" in shown else {})


def layout(
    sweep: str, params: Sequence[str], tasks: Sequence[str], kinds: Iterable[str], select: Select
) -> str:
    """The view that compares a sweep's trials, the best first, as JSON.

    Without their parent, which would fold them away. `kinds` are those of the tasks, `select` says
    of which epoch a trial's value is.
    """
    kinds = set(kinds)
    name, title = metrics.objective_name(kinds), metrics.objective_title(kinds)
    value = metrics.BEST if select == "best" else name
    slugs = [metrics.slug(task) for task in tasks]
    charts = [
        _lines("objective", f"Validation {title}", [name]),
        _parallel(params, value, title),
        _lines("loss", "Loss by task", [metrics.loss(slug) for slug in slugs]),
        _lines("sigma", "Uncertainty (sigma) by task", [metrics.sigma(slug) for slug in slugs]),
    ]
    column = f"metrics.`{value}`"
    state = {
        "searchFilter": f"tags.`mtcon.sweep` = '{sweep}' AND tags.`mtcon.trial` LIKE 'trial-%'",
        "orderByKey": column,
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "selectedColumns": [
            column,
            *(f"params.`{param}`" for param in params),
            "tags.`mtcon.pruned`",
        ],
        "runsHiddenMode": "FIRST_20_RUNS",
        "compareRunCharts": charts,
        "compareRunSections": [
            {"uuid": "mtcon", "name": "The sweep", "display": True, "isReordered": True}
        ],
        "isAccordionReordered": True,
        "hideEmptyCharts": True,
        "autoRefreshEnabled": True,
    }
    return json.dumps(state)


def packed(state: str) -> str:
    """A layout as the tag holds it."""
    return "deflate;" + base64.b64encode(zlib.compress(state.encode())).decode()


def parent_note(note: str, experiment: str, key: str) -> str:
    """A description, before it the link to the saved view: the page folds what is long."""
    address = f"#/experiments/{experiment}/runs?viewStateShareKey={key}&compareRunsMode=CHART"
    return f"[**Compare the trials**]({address})\n\n{note[:MAX_NOTE]}"


def trial_note(note: str, experiment: str, run: str) -> str:
    """A description with the link to the run's files behind it."""
    return f"{note}\n\n[Artifacts](#/experiments/{experiment}/runs/{run}/artifacts)"


def _lines(name: str, title: str, keys: Sequence[str]) -> dict[str, Any]:
    return {
        **_chart("LINE", name, title),
        "metricKey": keys[0],
        "selectedMetricKeys": list(keys),
        "xAxisKey": "step",
        "xAxisScaleType": "linear",
        "scaleType": "linear",
        "lineSmoothness": 0,
        "yAxisKey": "metric",
        "range": {},
    }


def _parallel(params: Sequence[str], objective: str, title: str) -> dict[str, Any]:
    chosen = {"selectedParams": list(params), "selectedMetrics": [objective]}
    return {**_chart("PARALLEL", "parallel", f"Settings and {title}"), **chosen}


def _chart(kind: str, name: str, title: str) -> dict[str, Any]:
    return {
        "type": kind,
        "uuid": f"mtcon-{name}",
        "displayName": title,
        "metricSectionId": "mtcon",
        "runsCountToCompare": CHART_RUNS,
        "deleted": False,
        "isGenerated": False,
    }
