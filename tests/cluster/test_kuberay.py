"""The files of cluster/kuberay/, checked with Kubernetes' schemas and our reader of clusters."""

import json
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

import mtcon_ray
from tests.pages import REPOSITORY

FOLDER = REPOSITORY / "cluster" / "kuberay"
KUBERNETES = "1.33"


def read(name: str) -> list[dict[str, Any]]:
    """Returns the documents of a file with YAML anchors expanded."""
    loaded = yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8"))
    return [json.loads(json.dumps(document)) for document in loaded]


(KUSTOMIZATION,) = read("kustomization.yaml")
DOCUMENTS = [document for name in KUSTOMIZATION["resources"] for document in read(name)]
(CLUSTER,) = (document for document in DOCUMENTS if document["kind"] == "RayCluster")
# Every pod template, by the name of the group or object that contains it.
PODS: dict[str, Any] = {
    "head": CLUSTER["spec"]["headGroupSpec"]["template"],
    **{group["groupName"]: group["template"] for group in CLUSTER["spec"]["workerGroupSpecs"]},
    **{d["metadata"]["name"]: d["spec"]["template"] for d in DOCUMENTS
       if "template" in d.get("spec", {})},
}  # fmt: skip


def test_kubernetes_kinds_and_all_pods_fit_its_strict_schemas() -> None:
    """Each pod of a RayCluster is put into a Deployment, whose schema rejects unknown fields."""
    options = CLUSTER["spec"]["autoscalerOptions"]
    given = {key: options[key] for key in ("env", "resources", "securityContext")}
    autoscaler = {"spec": {"containers": [{"name": "autoscaler", "image": "head", **given}]}}
    documents = [d for d in DOCUMENTS if not d["apiVersion"].startswith("ray.io/")]
    kind = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "pod"}}
    labels = {"app": "pod"}
    for template in [*PODS.values(), autoscaler]:
        pod = {**template["spec"], "restartPolicy": "Always"}
        whole = {"metadata": {"labels": labels}, "spec": pod}
        spec = {"selector": {"matchLabels": labels}, "template": whole}
        documents.append({**kind, "spec": spec})
    for document in documents:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)


def test_the_job_runs_on_the_cluster() -> None:
    (job,) = read("sweep.yaml")
    assert CLUSTER["apiVersion"] == job["apiVersion"] == "ray.io/v1"
    assert job["spec"]["clusterSelector"] == {"ray.io/cluster": CLUSTER["metadata"]["name"]}
    assert yaml.safe_load(job["spec"]["runtimeEnvYAML"])["env_vars"]
    # The first process collects orphans, so that jobs leave none.
    assert PODS["head"]["spec"]["shareProcessNamespace"] is True


@pytest.mark.ray
def test_a_sweep_learns_on_the_head_how_far_the_cluster_may_grow() -> None:
    from mtcon_ray.cluster.connection import FILE_VARIABLE, view_of

    spec = PODS["head"]["spec"]
    (container,) = spec["containers"]
    (named,) = (Path(e["value"]) for e in container["env"] if e["name"] == FILE_VARIABLE)
    (mount,) = (m for m in container["volumeMounts"] if m["mountPath"] == str(named.parent))
    (volume,) = (v for v in spec["volumes"] if v["name"] == mount["name"])
    (made,) = KUSTOMIZATION["configMapGenerator"]
    assert (volume["configMap"]["name"], named.name) == (made["name"], made["files"][0])
    view = view_of(str(FOLDER / "cluster.yaml"))
    sizes = {kind.name: (kind.cpus, kind.gpus, kind.count) for kind in view.kinds}
    assert sizes == {"headgroup": (0, 0, 1), "gpu-spot": (8, 1, 8), "gpu-on-demand": (8, 1, 4)}


def test_versions_and_images_come_from_one_place() -> None:
    pins = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert f"ray=={CLUSTER['spec']['rayVersion']}" in pins
    used = {c["image"] for pod in PODS.values() for c in pod["spec"]["containers"]}
    tags = {image["name"]: image["newTag"] for image in KUSTOMIZATION["images"]}
    compose = yaml.safe_load((REPOSITORY / "docker" / "compose.yaml").read_text("utf-8"))
    ours = dict.fromkeys(("mtcon-ray-node", "mtcon-ray-mlflow"), mtcon_ray.__version__)
    assert tags == {**ours, "postgres": compose["services"]["postgres"]["image"].partition(":")[2]}
    assert used == tags.keys()


def test_no_pod_runs_as_root_or_gains_rights() -> None:
    users = {}
    for name, template in PODS.items():
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            least = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
            assert container["securityContext"] == least
            assert container["resources"]["limits"]["memory"]
        if name != "head":  # the head's autoscaler creates pods through the Kubernetes API
            assert spec["automountServiceAccountToken"] is False
        users[name] = spec["securityContext"]["runAsUser"]
    ours = dict.fromkeys(["gpu-on-demand", "gpu-spot", "head", "mlflow"], 10001)
    assert users == {**ours, "postgres": 999}, "as cluster/README.md says"


def test_secrets_are_referred_to_and_never_written() -> None:
    """The operator gives the token to Ray's pods; the only other secret is the database's."""
    holders = {n for n, pod in PODS.items() if re.search("'secret(KeyRef|Name)'", str(pod))}
    assert holders == {"mlflow", "postgres"}
    assert not [d for d in DOCUMENTS if d["kind"] == "Secret"]
    assert CLUSTER["spec"]["authOptions"] == {"mode": "token"}
    containers = [c for template in PODS.values() for c in template["spec"]["containers"]]
    for variable in [v for c in containers for v in c.get("env", [])]:
        secret = variable["name"].endswith(("PASSWORD", "TOKEN", "KEY"))
        assert ("value" not in variable) or not secret


def test_all_pods_of_the_cluster_open_the_bucket_and_share_no_volume() -> None:
    (account,) = (d for d in DOCUMENTS if d["kind"] == "ServiceAccount")
    for name in ("head", "gpu-spot", "gpu-on-demand"):
        spec = PODS[name]["spec"]
        assert spec["serviceAccountName"] == account["metadata"]["name"]
        assert {"name": "home", "emptyDir": {}} in spec["volumes"]
        assert not any("persistentVolumeClaim" in volume for volume in spec["volumes"])
        (container,) = spec["containers"]
        assert {"name": "home", "mountPath": "/data"} in container["volumeMounts"]
        assert {"name": "HOME", "value": "/data"} in container["env"]
    root = {"name": "MTCON_RAY_ROOT", "value": "s3://BUCKET-EDIT/mtcon-ray"}
    assert root in PODS["head"]["spec"]["containers"][0]["env"]


def test_mlflow_alone_reaches_the_database_and_nothing_enters_from_outside() -> None:
    """Policies are additive: a single other policy would open what one seems to close."""
    found = {d["metadata"]["name"]: d["spec"] for d in DOCUMENTS if d["kind"] == "NetworkPolicy"}
    but_database = [{"key": "app", "operator": "NotIn", "values": ["postgres"]}]
    assert {name: policy["podSelector"] for name, policy in found.items()} == {
        "closed": {"matchExpressions": but_database},
        "operator-to-head": {"matchLabels": {"ray.io/node-type": "head"}},
        "database": {"matchLabels": {"app": "postgres"}},
    }
    mlflow = {"podSelector": {"matchLabels": {"app": "mlflow"}}}
    assert found["database"]["ingress"] == [{"from": [mlflow], "ports": [{"port": 5432}]}]
    assert found["closed"]["ingress"] == [{"from": [{"podSelector": {}}]}]
    (rule,) = found["operator-to-head"]["ingress"]
    (source,) = rule["from"]
    assert source["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "kuberay-operator"}
    assert rule["ports"] == [{"port": 8265}]
    services = [d for d in DOCUMENTS if d["kind"] in ("Service", "Ingress")]
    assert {s["spec"].get("type", "ClusterIP") for s in services} == {"ClusterIP"}
