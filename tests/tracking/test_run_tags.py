"""Tags and descriptions that MLflow's pages read, in the real store."""

import pytest

from mtcon_ray.records.events import Ended, Started
from mtcon_ray.tracking.runs import NOTE, column_tags
from tests.tracking.conftest import Sweep


def test_mlflows_default_columns_are_filled_from_our_tags() -> None:
    ours = {"mtcon.user": "anna", "mtcon.script": "sweep.py", "mtcon.git.commit": "abc", "x": "y"}
    assert column_tags(ours) == {
        "mlflow.user": "anna",
        "mlflow.source.name": "sweep.py",
        "mlflow.source.git.commit": "abc",
        "mlflow.source.type": "LOCAL",
    }
    assert column_tags({"mtcon.epochs": "3"}) == {}


@pytest.mark.mlflow
@pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning")
def test_a_sweeps_description_is_in_the_store(sweep: Sweep) -> None:
    """The end event's description replaces the first one, cut to what every server accepts."""
    parent = sweep.spool()
    parent.append(Started(params={}, tags={"mtcon.user": "anna"}, note="begun"))
    sweep.send()
    assert sweep.run().data.tags[NOTE] == "begun"
    parent.append(Ended(status="FINISHED", tags={}, note="won " * 5000))
    sender = sweep.send()
    assert not sender.refused
    run = sweep.run()
    assert run.data.tags[NOTE] == ("won " * 5000)[:5000]
    assert run.data.tags["mlflow.user"] == "anna"
