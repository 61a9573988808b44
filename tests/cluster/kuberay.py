"""The documents of `cluster/kuberay/`, rendered as kustomize does but without kubectl."""

import json
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[2] / "cluster" / "kuberay"
REPOSITORY = FOLDER.parents[1]


@cache
def rendered() -> tuple[dict[str, Any], ...]:
    """Returns what `kubectl apply -k` would send, for the features used in kustomization.yaml."""
    made = read("kustomization.yaml")[0]
    documents = [d for name in made["resources"] for d in read(name)]
    for each in made["configMapGenerator"]:
        data = {name: (FOLDER / name).read_text(encoding="utf-8") for name in each["files"]}
        named = {"name": each["name"]}
        documents.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": named, "data": data})
    for document in documents:
        if document["kind"] != "Namespace":
            document["metadata"]["namespace"] = made["namespace"]
    images = {i["name"]: f"{i.get('newName', i['name'])}:{i['newTag']}" for i in made["images"]}
    for _, template in pods(documents):
        for container in template["spec"]["containers"]:
            container["image"] = images.get(container["image"], container["image"])
    return tuple(documents)


def read(name: str) -> list[dict[str, Any]]:
    """Returns the documents of a file with YAML anchors expanded."""
    loaded = yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8"))
    return [json.loads(json.dumps(document)) for document in loaded]


def only(kind: str, name: str) -> dict[str, Any]:
    (found,) = (d for d in rendered() if d["kind"] == kind and d["metadata"]["name"] == name)
    return found


def pods(documents: Iterable[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields every pod template with the name of the group or object that contains it."""
    for document in documents:
        spec = document.get("spec", {})
        if document["kind"] == "RayCluster":
            yield "head", spec["headGroupSpec"]["template"]
            for group in spec["workerGroupSpecs"]:
                yield group["groupName"], group["template"]
        elif "template" in spec:
            yield document["metadata"]["name"], spec["template"]
