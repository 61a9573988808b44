"""Tags that MLflow's own pages read: a run's description, user, source and version."""

from collections.abc import Mapping

NOTE = "mlflow.note.content"
# Our tag to the tag that MLflow's columns "User", "Source" and "Version" read.
COLUMNS = {
    "mtcon.user": "mlflow.user",
    "mtcon.script": "mlflow.source.name",
    "mtcon.git.commit": "mlflow.source.git.commit",
}


def column_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Returns MLflow's own tags for our `tags`, so that the default columns of a run are filled."""
    shown = {theirs: tags[ours] for ours, theirs in COLUMNS.items() if ours in tags}
    return shown | ({"mlflow.source.type": "LOCAL"} if "mlflow.source.name" in shown else {})
