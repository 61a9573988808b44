"""Preparation of a sweep: all checks and downloads before it starts.

The cheapest checks come first: the labels, the images' files, the resources and the network's
weights. The tracking server is asked while images are downloaded and decoded.
"""

from pathlib import Path
from typing import Any

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import cache_folder, prepare_root
from mtcon_ray.data.dataset import CheckedData, Dataset, check_dataset, open_dataset
from mtcon_ray.plan.capacity import ClusterView
from mtcon_ray.plan.plan import Plan
from mtcon_ray.plan.planning import make_plan, with_each_encoder
from mtcon_ray.spec.run_spec import RunSpec
from mtcon_ray.tracking.login import check_login
from mtcon_ray.tracking.mlflow_server import ServerCheck


def prepare(
    spec: RunSpec,
    root: Path,
    cluster: ClusterView,
    uri: str,
    callbacks: Callbacks,
    first_configurations: tuple[dict[str, Any], ...] = (),
) -> tuple[Plan, Dataset]:
    """Returns the plan and the data of a spec after checking that this cluster can train it.

    `uri` names the tracking server. It must answer unless `tracking.offline` is set. Raises
    MtconError for every problem that would end the training at its start.
    """
    from mtcon_ray.plan.networks import fetch_weights  # imports torch, which takes seconds

    if not spec.tracking.offline:
        check_login(uri)
    callbacks.on_phase("reading labels")
    checked = check_data(spec, root)
    plan = make_plan(spec, root, cluster, checked.table, first_configurations=first_configurations)
    tracking = spec.tracking
    asked = None if tracking.offline else ServerCheck(uri, tracking.experiment, root)
    fetch_weights(with_each_encoder(spec), cache_folder(root))
    dataset = open_dataset(
        spec.data,
        view_size=spec.views.size,
        store=cache_folder(root),
        progress=callbacks.on_decode,
        on_download=callbacks.on_download,
        checked=checked,
    )
    if (dataset.table.split != checked.table.split).any():  # decoding found unreadable images
        plan = make_plan(
            spec, root, cluster, dataset.table, first_configurations=first_configurations
        )
    if asked:
        callbacks.on_phase("asking the MLflow server")
        asked.answer()
    return plan, dataset


def check_data(spec: RunSpec, root: Path) -> CheckedData:
    """Reads labels and checks images, see `check_dataset`.

    A CSV in an object store is downloaded, images are not. The result can be passed to `make_plan`
    and `open_dataset`.
    """
    if spec.data.urls():
        prepare_root(root)
    return check_dataset(spec.data, spec.views.size, cache_folder(root))
