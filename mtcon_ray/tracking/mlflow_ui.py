"""Tags for MLflow's own pages: a run's description, user, source and version."""

from collections.abc import Mapping

NOTE = "mlflow.note.content"
# Our tags, and the tags of MLflow's columns "User", "Source" and "Version".
COLUMNS = {
    "mtcon.user": "mlflow.user",
    "mtcon.script": "mlflow.source.name",
    "mtcon.git.commit": "mlflow.source.git.commit",
}


def column_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Returns MLflow's own tags for our `tags`, to fill the default columns of a run."""
    shown = {theirs: tags[ours] for ours, theirs in COLUMNS.items() if ours in tags}
    return shown | ({"mlflow.source.type": "LOCAL"} if "mlflow.source.name" in shown else {})
