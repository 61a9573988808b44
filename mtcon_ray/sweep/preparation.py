"""Preparation of a sweep: all checks and downloads before it starts.

The cheapest checks come first: the labels, the images' files, the resources and the network's
weights. The tracking server is asked before images are downloaded and decoded.
"""

import json
from itertools import islice
from pathlib import Path
from typing import Any

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import cache_folder, prepare_root, stored_url
from mtcon_ray.data import prepared
from mtcon_ray.data.dataset import CheckedData, Dataset, check_dataset, open_dataset
from mtcon_ray.data.image_cache import Lent, lent_nothing
from mtcon_ray.errors import SpecError
from mtcon_ray.plan.capacity import ClusterView
from mtcon_ray.plan.plan import Plan
from mtcon_ray.plan.planning import check_batch_size, make_plan, with_each
from mtcon_ray.records.results import first_tags
from mtcon_ray.spec.run_spec import RunSpec, with_values
from mtcon_ray.spec.space import grid_points
from mtcon_ray.tracking.login import check_login
from mtcon_ray.tracking.mlflow_server import check_server, own_database

MAX_SETS = 64  # of listed values of searched fields


def prepare(
    spec: RunSpec,
    folder: Path,
    cluster: ClusterView,
    uri: str,
    callbacks: Callbacks,
    first_configurations: tuple[dict[str, Any], ...] = (),
    lent: Lent = lent_nothing,
) -> tuple[Plan, Dataset, prepared.Sets]:
    """Returns the plan and the data of a spec after checking that this cluster can train it.

    `folder` is the folder of the sweep. `uri` names the tracking server. It must answer unless
    `tracking.offline` is set. `lent` gives decoders of other machines. A resumed sweep in an
    object store keeps its data. The last result names the data sets of all trials. Raises
    MtconError for every problem that would end the training at its start.
    """
    root, tracking, is_stored = folder.parents[1], spec.tracking, stored_url(folder) is not None
    store = cache_folder(root)
    if not tracking.offline:
        check_login(uri)
    callbacks.on_phase("reading labels")
    prepared.discard_unused(root)
    kept = _kept_sets(folder) if is_stored else {}
    keys = [prepared.data_key(one.data, one.views.size) for one in each_data(spec)]
    if kept.keys() >= {*keys}:  # else a resume has further values of data fields
        checked, dataset = None, prepared.open_set(spec.data, store, *kept[keys[0]])
        prepared.fetch_folder(folder / prepared.WEIGHTS, must=False)
    else:
        checked = check_data(spec, root)
    table = (checked or dataset).table
    weights = folder if is_stored else store
    given: Any = {"first": first_configurations, "weights": weights}
    plan = make_plan(spec, root, cluster, table, **given)
    if checked:
        _keep_weights(spec, weights, is_stored=is_stored)
    # Nobody can refuse the user's own file, and importing MLflow takes seconds.
    if not tracking.offline and uri != own_database(root):
        callbacks.on_phase("asking the MLflow server")
        check_server(uri, experiment=tracking.experiment, root=root)
    opened = _opened(spec, store, checked, callbacks, lent) if checked else {}
    if opened:
        dataset = next(iter(opened.values()))
        if (dataset.table.split != table.split).any():  # decoding found unreadable images
            plan = make_plan(spec, root, cluster, dataset.table, **given)
    if is_stored and opened:
        callbacks.on_phase("uploading the data")
    for data in opened.values():
        prepared.keep_set(data, store)
    found = {key: (data.cache, data.fingerprint) for key, data in opened.items()}
    return plan, dataset, found or kept


def _keep_weights(spec: RunSpec, folder: Path, *, is_stored: bool) -> None:
    """Puts the initial weights of all searched encoders into a folder, and into its store."""
    from mtcon_ray.models.encoders.base import fetch_weights  # imports torch, in seconds

    for each in with_each(spec, "model.encoder."):
        fetch_weights(each.model.encoder, folder, copies=is_stored)
    if is_stored and (folder / prepared.WEIGHTS).exists():
        prepared.upload_folder(folder / prepared.WEIGHTS)


def _kept_sets(folder: Path) -> prepared.Sets:
    """Returns the data sets of a sweep that has begun, as its first event names them."""
    found = json.loads(first_tags(folder).get(prepared.SETS_TAG, "{}"))
    return {key: (str(cache), str(fingerprint)) for key, (cache, fingerprint) in found.items()}


def _opened(
    spec: RunSpec, store: Path, checked: CheckedData, callbacks: Callbacks, lent: Lent
) -> dict[str, Dataset]:
    """Opens the data of a spec and of all its trials, by `data_key`."""
    opened: dict[str, Dataset] = {}
    for one in each_data(spec):
        size, first = one.views.size, None if opened else checked
        if (key := prepared.data_key(one.data, size)) not in opened:
            opened[key] = open_dataset(
                one.data, view_size=size, store=store, callbacks=callbacks, checked=first, lent=lent
            )
    return opened


def each_data(spec: RunSpec) -> list[RunSpec]:
    """Returns the spec, and a copy for each combination of listed values of data fields.

    Raises SpecError if a data field has a range of values, or for more than MAX_SETS combinations:
    trials read only data that the driver has prepared.
    """
    space = spec.search.space
    searched = {p: d for p, d in space.items() if p.startswith("data.") or p == "views.size"}
    points = list(islice(grid_points(searched), MAX_SETS + 1))
    if not 1 <= len(points) <= MAX_SETS:
        raise SpecError(
            f"{', '.join(searched)}: search.space must list at most {MAX_SETS} combinations of "
            "their values, which the driver prepares for all trials; give {choice: [...]}"
        )
    return [spec, *(with_values(spec, {**one, "search": {}}) for one in points if one)]


def check_data(spec: RunSpec, root: Path) -> CheckedData:
    """Reads labels and checks images, see `check_dataset`, for each listed `data.fraction`.

    A CSV in an object store is downloaded, images are not. The result can be passed to `make_plan`
    and `open_dataset`.
    """
    each_data(spec)  # refuses a range of values
    if spec.data.urls():
        prepare_root(root)
    found = []
    for one in with_each(spec, "data.fraction"):
        found.append(check_dataset(one.data, one.views.size, cache_folder(root)))
        check_batch_size(spec, found[-1].table, one.data.fraction)
    return found[0]
