"""The Kubernetes files as kustomize renders them, checked with schemas and Ray's own reader."""

import re
import shutil
import subprocess
from pathlib import PurePath
from typing import Any

import kubernetes_validate
import pytest
import yaml

import mtcon_ray
from mtcon_ray.plan.capacity import check_cluster
from mtcon_ray.spec.run_spec import parse_spec
from tests.cluster.kuberay import FOLDER, REPOSITORY, only, pods, rendered

KUBERNETES = "1.33"


def test_kustomize_makes_the_same_of_the_files() -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("needs kubectl, for kustomize; no cluster")
    done = subprocess.run(
        ["kubectl", "kustomize", str(FOLDER)], capture_output=True, text=True, check=True
    )
    made = list(yaml.safe_load_all(done.stdout))
    assert len(made) == len(rendered())
    assert all(document in made for document in rendered())


def test_kubernetes_kinds_and_all_pods_fit_its_strict_schemas() -> None:
    """Each pod of a RayCluster is put into a Deployment, whose schema rejects unknown fields."""
    options = only("RayCluster", "mtcon-ray")["spec"]["autoscalerOptions"]
    given = {key: options[key] for key in ("env", "resources", "securityContext")}
    autoscaler = {"spec": {"containers": [{"name": "autoscaler", "image": "head", **given}]}}
    documents = [d for d in rendered() if not d["apiVersion"].startswith("ray.io/")]
    for name, template in [*pods(rendered()), ("autoscaler", autoscaler)]:
        labelled = {**template, "metadata": {"labels": {"app": name}}}
        labelled["spec"] = {**template["spec"], "restartPolicy": "Always"}
        spec = {"selector": {"matchLabels": {"app": name}}, "template": labelled}
        metadata = {"name": name, "namespace": "mtcon-ray"}
        documents.append(
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
        )
    for document in documents:
        assert document["kind"] == "Namespace" or document["metadata"]["namespace"] == "mtcon-ray"
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
    documents[-1]["spec"]["template"]["spec"]["restartpolicy"] = "Never"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(documents[-1], KUBERNETES, strict=True)


def test_the_job_runs_on_the_cluster() -> None:
    job: dict[str, Any] = yaml.safe_load((FOLDER / "sweep.yaml").read_text(encoding="utf-8"))
    cluster = only("RayCluster", "mtcon-ray")
    assert cluster["apiVersion"] == job["apiVersion"] == "ray.io/v1"
    assert job["spec"]["clusterSelector"] == {"ray.io/cluster": cluster["metadata"]["name"]}
    assert yaml.safe_load(job["spec"]["runtimeEnvYAML"])["env_vars"]
    # The first process collects orphans, so that jobs leave none.
    assert dict(pods(rendered()))["head"]["spec"]["shareProcessNamespace"] is True


@pytest.mark.ray
def test_a_sweep_learns_on_the_head_how_far_the_cluster_may_grow() -> None:
    """The sizes come from the file, by Ray's own reader: the head has no CPU."""
    from mtcon_ray.cluster.connection import FILE_VARIABLE, view_of

    spec = dict(pods(rendered()))["head"]["spec"]
    (container,) = spec["containers"]
    (named,) = (e["value"] for e in container["env"] if e["name"] == FILE_VARIABLE)
    folder, file = PurePath(named).parent, PurePath(named).name
    (mount,) = (m for m in container["volumeMounts"] if m["mountPath"] == str(folder))
    (volume,) = (v for v in spec["volumes"] if v["name"] == mount["name"])
    text = only("ConfigMap", volume["configMap"]["name"])["data"][file]
    assert text == (FOLDER / "cluster.yaml").read_text("utf-8")
    view = view_of(str(FOLDER / "cluster.yaml"))
    sizes = {kind.name: (kind.cpus, kind.gpus, kind.count) for kind in view.kinds}
    assert sizes == {"headgroup": (0, 0, 1), "gpu-spot": (8, 1, 8), "gpu-on-demand": (8, 1, 4)}
    trial = {"name": "trial", "resources": {"gpus": 1, "cpus": 8}}
    assert check_cluster(parse_spec(trial), view) == 8 + 4


def test_versions_and_images_come_from_one_place() -> None:
    pins = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines()
    (ray,) = (line.removeprefix("ray==") for line in pins if line.startswith("ray=="))
    assert only("RayCluster", "mtcon-ray")["spec"]["rayVersion"] == ray
    images = {c["image"] for _, pod in pods(rendered()) for c in pod["spec"]["containers"]}
    ours = {
        f"REGISTRY-EDIT/mtcon-ray-{name}:{mtcon_ray.__version__}" for name in ("node", "mlflow")
    }
    compose = yaml.safe_load((REPOSITORY / "docker" / "compose.yaml").read_text("utf-8"))
    assert images == {*ours, compose["services"]["postgres"]["image"]}


def test_no_pod_runs_as_root_or_gains_rights() -> None:
    users = {}
    for name, template in pods(rendered()):
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["limits"]["memory"]
        if name != "head":  # the head's autoscaler creates pods through the Kubernetes API
            assert spec["automountServiceAccountToken"] is False
        users[name] = spec["securityContext"]["runAsUser"]
    ours = dict.fromkeys(["gpu-on-demand", "gpu-spot", "head", "mlflow"], 10001)
    assert users == {**ours, "postgres": 999}, "as cluster/README.md says"


def test_secrets_are_referred_to_and_never_written() -> None:
    """The operator gives the token to Ray's pods; the only other secret is the database's."""
    holders = {n for n, pod in pods(rendered()) if re.search("'secret(KeyRef|Name)'", str(pod))}
    assert holders == {"mlflow", "postgres"}
    assert not [d for d in rendered() if d["kind"] == "Secret"]
    assert only("RayCluster", "mtcon-ray")["spec"]["authOptions"] == {"mode": "token"}
    for _, template in pods(rendered()):
        for container in template["spec"]["containers"]:
            for variable in container.get("env", []):
                secret = variable["name"].endswith(("PASSWORD", "TOKEN", "KEY"))
                assert ("value" not in variable) or not secret


def test_all_pods_of_the_cluster_open_the_bucket_and_share_no_volume() -> None:
    account = only("ServiceAccount", "bucket")["metadata"]["name"]
    templates = {n: t for n, t in pods(rendered()) if n in ("head", "gpu-spot", "gpu-on-demand")}
    for template in templates.values():
        spec = template["spec"]
        assert spec["serviceAccountName"] == account
        assert {"name": "home", "emptyDir": {}} in spec["volumes"]
        assert not any("persistentVolumeClaim" in volume for volume in spec["volumes"])
        (container,) = spec["containers"]
        assert {"name": "home", "mountPath": "/data"} in container["volumeMounts"]
        assert {"name": "HOME", "value": "/data"} in container["env"]
    root = {"name": "MTCON_RAY_ROOT", "value": "s3://BUCKET-EDIT/mtcon-ray"}
    assert root in templates["head"]["spec"]["containers"][0]["env"]
    assert "ReadWriteMany" not in str(rendered())


def test_mlflow_alone_reaches_the_database_and_nothing_enters_from_outside() -> None:
    """Policies are additive: a single other policy would open what one seems to close."""
    found = {d["metadata"]["name"]: d["spec"] for d in rendered() if d["kind"] == "NetworkPolicy"}
    selected = {name: policy["podSelector"] for name, policy in found.items()}
    but_database = [{"key": "app", "operator": "NotIn", "values": ["postgres"]}]
    assert selected == {
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
    services = [d for d in rendered() if d["kind"] in ("Service", "Ingress")]
    assert {s["spec"].get("type", "ClusterIP") for s in services} == {"ClusterIP"}
