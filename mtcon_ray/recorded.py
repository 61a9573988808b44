"""The spec and the plan in the folder of a sweep or training."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mtcon_ray.errors import SweepError
from mtcon_ray.evaluation.spec import EVALUATION, ShortProbeSpec
from mtcon_ray.paths import PLAN_FILE, SPEC_FILE
from mtcon_ray.plan import Plan
from mtcon_ray.safe_yaml import dump_yaml
from mtcon_ray.spec import RunSpec, dump_spec, parse_spec, read_yaml


def write_beginnings(folder: Path, spec: RunSpec, plan: Plan) -> None:
    """Writes spec and plan to the folder of a sweep or training, each file atomically."""
    text = dump_yaml(dump_spec(spec))
    for name, content in ((SPEC_FILE, text), (PLAN_FILE, plan.model_dump_json(indent=1) + "\n")):
        beside = folder / f"{name}.new"
        beside.write_text(content, encoding="utf-8")
        os.replace(beside, folder / name)


def load_recorded(path: Path) -> RunSpec:
    """Returns the spec in the file of a sweep or training. Raises SpecError if it is invalid."""
    return parse_recorded(read_yaml(path), where=str(path))


def parse_recorded(raw: Mapping[str, Any], *, where: str) -> RunSpec:
    """Returns the spec from plain data that was recorded with all defaults written out.

    Also reads specs of versions without evaluate.probe.solver, which trained all probes by
    stochastic gradient descent. `train.compile: kernels` of earlier versions changed rounding
    alone, so it is read as none. Raises SpecError if the spec is invalid.
    """
    if raw.get("train", {}).get("compile") == "kernels":
        raw = {**raw, "train": {**raw["train"], "compile": "none"}}
    evaluate = dict(raw.get("evaluate", {}))
    probe = evaluate.get("probe", {})
    if not probe or "solver" in probe:
        return parse_spec(raw, where=where)
    short = evaluate.get("short_probe", {})
    evaluate["probe"] = {**probe, "solver": "sgd"}
    evaluate["short_probe"] = {k: v for k, v in short.items() if k in ShortProbeSpec.model_fields}
    return parse_spec({**raw, "evaluate": evaluate}, where=where)


def check_evaluation(folder: Path) -> None:
    """Raises SweepError if the sweep or training was evaluated by another version's protocol.

    Its scores could not be compared with those of this version.
    """
    # Plans without the field are of versions before it was introduced, with evaluation 1.
    plan = folder / PLAN_FILE
    recorded = json.loads(plan.read_text()).get("evaluation", 1) if plan.exists() else EVALUATION
    if recorded != EVALUATION:
        raise SweepError(
            f"{folder.name!r} must have been begun with the probes of this version to be resumed, "
            f"got evaluation {recorded} instead of {EVALUATION}: accuracies of both cannot be "
            "compared; start anew with another --name, or resume it with the version that began it"
        )
