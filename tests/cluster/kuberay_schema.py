"""What KubeRay's operator takes of a RayCluster and a RayJob, of the fields that are used here.

After its Go types (RayCluster's of the middle of 2026, RayJob's of 1.5) and after what it refuses
beyond them. Pods, and what goes into the autoscaler's container, are held to Kubernetes' schema.
"""

from typing import Any

WORDS = {"type": "object", "additionalProperties": {"type": "string"}}
TEXT = {"type": "string"}
INT32 = {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1}
COUNT = {**INT32, "minimum": 0}
# With autoscaling v2 the operator refuses pods that start again by themselves.
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
    """An object of these fields and no other."""
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
    # The version decides whether the operator takes a token and a priority.
    ["headGroupSpec", "rayVersion"], rayVersion=TEXT, enableInTreeAutoscaling={"type": "boolean"},
    authOptions=closed(["mode"], mode={"enum": ["disabled", "token"]}),
    autoscalerOptions=AUTOSCALER, headGroupSpec=HEAD_GROUP,
    workerGroupSpecs={"type": "array", "items": WORKER_GROUP},
)  # fmt: skip
RAY_JOB = closed(
    ["entrypoint", "clusterSelector"], entrypoint=TEXT,
    clusterSelector={**WORDS, "required": ["ray.io/cluster"]},
    # Of a cluster that is there; a fourth way, SidecarMode, is for one of the job's own.
    submissionMode={"enum": ["K8sJobMode", "HTTPMode", "InteractiveMode"]},
    entrypointResources=TEXT, runtimeEnvYAML=TEXT,
)  # fmt: skip
