"""Spec and plan of a sweep or a training, as they are recorded in its folder."""

import os
from pathlib import Path

from mtcon_ray.places import PLAN_FILE, SPEC_FILE
from mtcon_ray.plain_yaml import dump_yaml
from mtcon_ray.plan import Plan
from mtcon_ray.spec import RunSpec, dump_spec


def write_beginnings(folder: Path, spec: RunSpec, plan: Plan) -> None:
    """Store spec and plan in the folder of a sweep or a training."""
    text = dump_yaml(dump_spec(spec))
    for name, content in ((SPEC_FILE, text), (PLAN_FILE, plan.model_dump_json(indent=1) + "\n")):
        beside = folder / f"{name}.new"
        beside.write_text(content, encoding="utf-8")
        os.replace(beside, folder / name)
