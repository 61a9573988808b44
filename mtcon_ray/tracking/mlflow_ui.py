"""Content of MLflow's UI for a sweep: MLflow's own tags, a description and a saved view.

A view is a set of columns and charts, stored as JSON in a tag of the experiment. A URL with the
tag's key opens it. MLflow's UI writes the same kind of tag for its "share" button. The names and
fields are those of the UI's internal state, which MLflow does not document (3.17.2).
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
# Our tag to the tag that MLflow's columns "User", "Source" and "Version" read.
COLUMNS = {
    "mtcon.user": "mlflow.user",
    "mtcon.script": "mlflow.source.name",
    "mtcon.git.commit": "mlflow.source.git.commit",
}
MAX_NOTE = 4500  # characters; with the link a note stays below the 5000 that every server accepts
CHART_RUNS = 20  # runs shown in a chart at a time


def column_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Returns MLflow's own tags for our `tags`, so that the default columns of a run are filled."""
    shown = {theirs: tags[ours] for ours, theirs in COLUMNS.items() if ours in tags}
    return shown | ({"mlflow.source.type": "LOCAL"} if "mlflow.source.name" in shown else {})


def layout(
    sweep: str, params: Sequence[str], tasks: Sequence[str], kinds: Iterable[str], select: Select
) -> str:
    """Returns the view that compares a sweep's trials, best first, as JSON.

    The filter excludes the parent run, because MLflow collapses child runs below their parent.
    `kinds` are the kinds of the tasks. `select` is the rule for the epoch of a trial's value, the
    best or the last.
    """
    kinds = set(kinds)
    name, title = metrics.objective_name(kinds), metrics.objective_title(kinds)
    value = metrics.BEST if select == "best" else name
    slugs = [metrics.slug(task) for task in tasks]
    charts = [
        _lines("objective", f"Validation {title}", [name]),
        {
            **_chart("PARALLEL", "parallel", f"Settings and {title}"),
            "selectedParams": list(params),
            "selectedMetrics": [value],
        },
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
    """Returns a view in the encoding of MLflow's tag: "deflate;" and Base64 of the zlib stream."""
    return "deflate;" + base64.b64encode(zlib.compress(state.encode())).decode()


def parent_note(note: str, experiment: str, key: str) -> str:
    """Returns the parent run's description, with the link to the saved view in front of it.

    The link comes first because MLflow's page collapses long descriptions.
    """
    address = f"#/experiments/{experiment}/runs?viewStateShareKey={key}&compareRunsMode=CHART"
    return f"[**Compare the trials**]({address})\n\n{note[:MAX_NOTE]}"


def trial_note(note: str, experiment: str, run: str) -> str:
    """Returns a trial's description, followed by a link to the run's artifacts."""
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
