"""The Kubernetes files as kustomize renders them, checked with schemas and with Ray's own reader.

No package registry has KubeRay's CRDs. Therefore the parts of RayCluster and RayJob around the pods
are checked with a closed schema of the used fields, and with the CRDs if `--crds` names their
folder.
"""

import json
import re
import shutil
import subprocess
from pathlib import PurePath
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from mtcon_ray.capacity import check_cluster
from mtcon_ray.spec import parse_spec
from tests.cluster.kuberay import FOLDER, REPOSITORY, only, pods, rendered
from tests.cluster.kuberay_schema import RAY_CLUSTER, RAY_JOB

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


def test_kubernetes_own_kinds_fit_its_schemas() -> None:
    kinds = []
    for document in rendered():
        assert document["kind"] == "Namespace" or document["metadata"]["namespace"] == "mtcon-ray"
        if not document["apiVersion"].startswith("ray.io/"):
            kubernetes_validate.validate(document, KUBERNETES, strict=True)
            kinds.append(document["kind"])
    assert {"StatefulSet", "Deployment", "NetworkPolicy", "PersistentVolumeClaim"} <= set(kinds)


def test_pods_of_the_ray_cluster_fit_kubernetes_schema() -> None:
    """Each pod is put into a Deployment, whose strict schema rejects unknown fields."""
    options = only("RayCluster", "mtcon-ray")["spec"]["autoscalerOptions"]
    given = {key: options[key] for key in ("env", "resources", "securityContext")}
    autoscaler = {"spec": {"containers": [{"name": "autoscaler", "image": "head", **given}]}}
    for name, template in [*pods(rendered()), ("autoscaler", autoscaler)]:
        labelled = {**template, "metadata": {"labels": {"app": name}}}
        labelled["spec"] = {**template["spec"], "restartPolicy": "Always"}
        document: dict[str, Any] = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": {"app": name}}, "template": labelled},
        }
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
        broken = {**template["spec"], "restartpolicy": "Never"}
        document["spec"] = {**document["spec"], "template": {**labelled, "spec": broken}}
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(document, KUBERNETES, strict=True)


def test_the_first_process_beside_the_jobs_collects_orphans() -> None:
    templates = dict(pods(rendered()))
    assert templates["head"]["spec"]["shareProcessNamespace"] is True


def ray_job() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / "sweep.yaml").read_text(encoding="utf-8"))
    return found


def test_ray_kinds_are_as_the_operator_takes_them() -> None:
    cluster, job = only("RayCluster", "mtcon-ray"), ray_job()
    assert cluster["apiVersion"] == job["apiVersion"] == "ray.io/v1"
    jsonschema.validate(cluster["spec"], RAY_CLUSTER)
    jsonschema.validate(job["spec"], RAY_JOB)
    assert job["spec"]["clusterSelector"] == {"ray.io/cluster": cluster["metadata"]["name"]}
    assert json.loads(job["spec"]["entrypointResources"])
    assert yaml.safe_load(job["spec"]["runtimeEnvYAML"])["env_vars"]
    for group in cluster["spec"]["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["maxReplicas"]
    # The operator rejects this variable together with autoscalerOptions.version.
    assert "RAY_enable_autoscaler_v2" not in str(cluster["spec"]["headGroupSpec"])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("rayversion", "2.60.0"),
        ("authOptions.mode", "on"),
        ("autoscalerOptions.version", "V2"),
        ("autoscalerOptions.idleTimeoutSeconds", "300"),
        ("headGroupSpec.rayStartParams.num-cpus", 0),
        ("headGroupSpec.rayStartParams.labels", "spot=false"),
        ("headGroupSpec.template.spec.restartPolicy", "Always"),
        ("headGroupSpec.template.spec.containers", []),
        ("workerGroupSpecs.0.template.spec.restartPolicy", "OnFailure"),
        ("workerGroupSpecs.0.priority", "10"),
        ("workerGroupSpecs.0.minReplicas", -1),
        ("workerGroupSpecs.0.maxReplicas", 2**31),
        ("workerGroupSpecs.0.minWorkers", 0),
    ],
)
def test_what_the_operator_refuses_is_refused(path: str, value: object) -> None:
    spec = json.loads(json.dumps(only("RayCluster", "mtcon-ray")["spec"]))
    place: Any = spec
    *before, last = path.split(".")
    for key in before:
        place = place[int(key) if isinstance(place, list) else key]
    place[last] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(spec, RAY_CLUSTER)


@pytest.mark.parametrize(
    "change",
    [{"submissionMode": "SidecarMode"}, {"clusterSelector": {}}, {"entrypointResources": {}},
     {"backoffLimit": 1}],
)  # fmt: skip
def test_a_job_that_the_operator_refuses_is_refused(change: dict[str, Any]) -> None:
    """A job on an existing cluster must not be retried, so backoffLimit is rejected."""
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**ray_job()["spec"], **change}, RAY_JOB)


def strict(schema: Any) -> Any:
    """Returns a CRD's schema as kubectl applies it, with unknown fields as errors."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: strict(value) for key, value in schema.items()}
    if "properties" in found and not found.get("x-kubernetes-preserve-unknown-fields"):
        found.setdefault("additionalProperties", False)
    return found


@pytest.mark.parametrize("kind", ["RayCluster", "RayJob"])
def test_ray_kinds_fit_kuberays_own_schema(kind: str, request: pytest.FixtureRequest) -> None:
    folder = request.config.getoption("--crds")
    if folder is None:
        pytest.skip(
            "needs KubeRay's CRDs, in a folder that --crds names: `kubectl get crd -o yaml` of "
            "rayclusters.ray.io and rayjobs.ray.io, or crds/ of the chart kuberay-operator"
        )
    crds = (yaml.safe_load(file.read_text("utf-8")) for file in folder.glob("*.yaml"))
    (crd,) = (crd for crd in crds if crd["spec"]["names"]["kind"] == kind)
    (version,) = (v for v in crd["spec"]["versions"] if v["name"] == "v1")
    (ours,) = (d for d in [*rendered(), ray_job()] if d["kind"] == kind)
    schema = strict(version["schema"]["openAPIV3Schema"]["properties"]["spec"])
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(ours["spec"], schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**ours["spec"], "rayversion": "2.60.0"}, schema)


@pytest.mark.ray
def test_ray_reads_its_node_types_from_the_cluster() -> None:
    """Uses the autoscaler's own translation: the head has no CPU, spot precedes on-demand."""
    from ray.autoscaler._private.kuberay.autoscaling_config import (
        _generate_available_node_types_from_ray_cr_spec,
    )

    kinds = _generate_available_node_types_from_ray_cr_spec(only("RayCluster", "mtcon-ray")["spec"])
    assert kinds["headgroup"]["resources"]["CPU"] == 0
    for name, priority, most in (("gpu-spot", 10, 8), ("gpu-on-demand", 0, 4)):
        kind = kinds[name]
        assert (kind["resources"]["CPU"], kind["resources"]["GPU"]) == (8, 1)
        assert (kind["min_workers"], kind["max_workers"]) == (0, most)
        assert kind["priority"] == priority


@pytest.mark.ray
def test_a_sweep_learns_on_the_head_how_far_the_cluster_may_grow() -> None:
    """The limits come from the file, so that several sweeps can share what groups may become."""
    from mtcon_ray.cluster.connection import FILE_VARIABLE, view_of

    spec = dict(pods(rendered()))["head"]["spec"]
    (container,) = spec["containers"]
    (named,) = (e["value"] for e in container["env"] if e["name"] == FILE_VARIABLE)
    volumes = {v["name"]: v["configMap"] for v in spec["volumes"] if "configMap" in v}
    (mount,) = (m for m in container["volumeMounts"] if m["name"] in volumes)
    file = PurePath(named).relative_to(mount["mountPath"])
    text = only("ConfigMap", volumes[mount["name"]]["name"])["data"][str(file)]
    assert text == (FOLDER / "cluster.yaml").read_text("utf-8")
    view = view_of(str(FOLDER / "cluster.yaml"))
    trial = {"name": "trial", "resources": {"gpus": 1, "cpus": 8}}
    assert check_cluster(parse_spec(trial), view) == 8 + 4


def test_versions_and_images_come_from_one_place() -> None:
    pins = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines()
    (ray,) = (line.removeprefix("ray==") for line in pins if line.startswith("ray=="))
    assert only("RayCluster", "mtcon-ray")["spec"]["rayVersion"] == ray
    images = {c["image"] for _, pod in pods(rendered()) for c in pod["spec"]["containers"]}
    ours = {f"REGISTRY-EDIT/mtcon-ray-{name}:0.1.0" for name in ("node", "mlflow")}
    compose = yaml.safe_load((REPOSITORY / "docker" / "compose.yaml").read_text("utf-8"))
    assert images == {*ours, compose["services"]["postgres"]["image"]}
    import mtcon_ray

    assert mtcon_ray.__version__ in next(i for i in images if "mtcon" in i)


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


def test_all_pods_of_the_cluster_share_the_root() -> None:
    assert only("PersistentVolumeClaim", "root")["spec"]["accessModes"] == ["ReadWriteMany"]
    for name, template in pods(rendered()):
        if name in ("head", "gpu-spot", "gpu-on-demand"):
            (container,) = template["spec"]["containers"]
            assert {"name": "root", "mountPath": "/data"} in container["volumeMounts"]
            assert {"name": "HOME", "value": "/data"} in container["env"]
