"""Closed schemas of RayCluster and RayJob, limited to the fields that cluster/kuberay/ uses.

They follow the Go types of KubeRay's operator (RayCluster: mid-2026, RayJob: 1.5) and its
additional validation. Pods and the autoscaler's container are checked with Kubernetes' own schema.
"""

from typing import Any

WORDS = {"type": "object", "additionalProperties": {"type": "string"}}
TEXT = {"type": "string"}
INT32 = {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1}
COUNT = {**INT32, "minimum": 0}
# With autoscaler v2 the operator rejects pods that restart by themselves.
POD = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["containers"],
            "properties": {
                "restartPolicy": {"const": "Never"},
                "containers": {"type": "array", "minItems": 1},
            },
        }
    },
}
START = {**WORDS, "not": {"required": ["labels"]}}


def closed(required: list[str], **fields: Any) -> dict[str, Any]:
    """Returns the schema of an object with these fields and no others."""
    return {
        "type": "object",
        "properties": fields,
        "required": required,
        "additionalProperties": False,
    }


AUTOSCALER = closed(
    ["version", "idleTimeoutSeconds"], version={"enum": ["v1", "v2"]}, idleTimeoutSeconds=COUNT,
    env={"type": "array"}, securityContext={"type": "object"}, resources={"type": "object"},
)  # fmt: skip
HEAD_GROUP = closed(["template", "rayStartParams"], rayStartParams=START, template=POD)
WORKER_GROUP = closed(
    ["groupName", "minReplicas", "maxReplicas", "template", "rayStartParams"],
    groupName=TEXT, priority=INT32, replicas=COUNT, minReplicas=COUNT, maxReplicas=COUNT,
    rayStartParams=START, template=POD,
)  # fmt: skip
RAY_CLUSTER = closed(
    # The operator accepts a token and a priority only from certain Ray versions on.
    ["headGroupSpec", "rayVersion"], rayVersion=TEXT, enableInTreeAutoscaling={"type": "boolean"},
    authOptions=closed(["mode"], mode={"enum": ["disabled", "token"]}),
    autoscalerOptions=AUTOSCALER, headGroupSpec=HEAD_GROUP,
    workerGroupSpecs={"type": "array", "items": WORKER_GROUP},
)  # fmt: skip
RAY_JOB = closed(
    ["entrypoint", "clusterSelector"], entrypoint=TEXT,
    clusterSelector={**WORDS, "required": ["ray.io/cluster"]},
    # For a job on an existing cluster; the fourth mode, SidecarMode, needs a cluster of the job's
    # own.
    submissionMode={"enum": ["K8sJobMode", "HTTPMode", "InteractiveMode"]},
    entrypointResources=TEXT, runtimeEnvYAML=TEXT,
)  # fmt: skip
