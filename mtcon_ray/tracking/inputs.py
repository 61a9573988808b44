"""The data set of a run as MLflow's table and its column "Dataset" show it."""

import json
from pathlib import Path

from mlflow.entities import Dataset, DatasetInput, InputTag

from mtcon_ray.errors import SpecError
from mtcon_ray.places import SPEC_FILE
from mtcon_ray.recorded import load_recorded
from mtcon_ray.spec import dump_spec
from mtcon_ray.tracking.provenance import FINGERPRINT
from mtcon_ray.tracking.spool import Event

DIGEST = 8  # characters, as MLflow's own


def dataset_input(folder: Path, begun: Event) -> DatasetInput | None:
    """The data that the spec in `folder` names, told apart by the first event's fingerprint.

    Named by the CSV or the kind of data, without places. None for a record without a fingerprint,
    and where another version wrote the spec, so that its metrics are sent all the same.
    """
    fingerprint = begun["tags"].get(FINGERPRINT)
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
