"""The dataset input of an MLflow run, which fills the column "Dataset" of MLflow's run table."""

import json
from pathlib import Path

from mlflow.entities import Dataset, DatasetInput, InputTag

from mtcon_ray.base.paths import SPEC_FILE
from mtcon_ray.errors import SpecError
from mtcon_ray.records.events import Started
from mtcon_ray.records.recorded import load_recorded
from mtcon_ray.spec.run_spec import dump_spec
from mtcon_ray.tracking.provenance import FINGERPRINT

DIGEST = 8  # characters, as MLflow's own


def dataset_input(folder: Path, begun: Started) -> DatasetInput | None:
    """Returns the dataset of the spec in `folder`, with the first event's fingerprint as digest.

    The dataset is named after the CSV file or the kind of data and contains no directory names.
    Returns None if the event has no fingerprint. Also returns None if another version wrote the
    spec and it cannot be read, because the run's metrics must be sent anyway.
    """
    fingerprint = begun.tags.get(FINGERPRINT)
    if fingerprint is None:
        return None
    try:
        data = dump_spec(load_recorded(folder / SPEC_FILE))["data"]
    except SpecError:
        return None
    kind = data["kind"]
    file = Path(data.get("csv", kind))
    source = json.dumps({"kind": kind, "file": file.name})
    dataset = Dataset(file.stem, fingerprint[:DIGEST], kind, source)
    return DatasetInput(dataset, [InputTag("mlflow.data.context", "training")])
