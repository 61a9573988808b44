"""Allowed connections in the namespace under all network policies of `cluster/kuberay/`."""

from typing import Any

from tests.cluster.kuberay import pods, rendered

OPERATOR = {"app.kubernetes.io/name": "kuberay-operator"}


def labels() -> dict[str, dict[str, str]]:
    """Returns the labels of every pod; the operator sets those of Ray's pods."""
    found = {}
    for name, template in pods(rendered()):
        ray = {"ray.io/cluster": "mtcon-ray", "ray.io/node-type": "worker"}
        if name == "head":
            ray["ray.io/node-type"] = "head"
        found[name] = template.get("metadata", {}).get("labels", ray)
    return found


def policies() -> list[dict[str, Any]]:
    return [d["spec"] for d in rendered() if d["kind"] == "NetworkPolicy"]


def selects(selector: dict[str, Any], pod: dict[str, str]) -> bool:
    """Returns True if a label selector matches a pod; supports only the operator NotIn."""
    expressions = selector.get("matchExpressions", [])
    assert {e["operator"] for e in expressions} <= {"NotIn"}
    assert set(selector) <= {"matchLabels", "matchExpressions"}
    return selector.get("matchLabels", {}).items() <= pod.items() and not any(
        pod.get(e["key"]) in e["values"] for e in expressions
    )


def reaches(sender: dict[str, str], receiver: dict[str, str], port: int, *, outside: bool) -> bool:
    """Returns True if a policy allows the connection, or if no policy selects the receiver."""
    ours = [p for p in policies() if selects(p["podSelector"], receiver)]
    return not ours or any(
        selects(source["podSelector"], sender)
        for policy in ours
        for rule in policy["ingress"]
        if port in [p["port"] for p in rule.get("ports", [{"port": port}])]
        for source in rule["from"]
        if outside == ("namespaceSelector" in source)
    )


def test_mlflow_alone_reaches_the_database() -> None:
    """Policies are additive: one policy may allow what another one seems to forbid."""
    found = labels()
    assert sorted(found) == ["gpu-on-demand", "gpu-spot", "head", "mlflow", "postgres"]
    for port in (5432, 22):
        senders = {
            n for n, p in found.items() if reaches(p, found["postgres"], port, outside=False)
        }
        assert senders == ({"mlflow"} if port == 5432 else set())


def test_ray_and_mlflow_reach_each_other_and_the_operator_the_head_alone() -> None:
    found = labels()
    database = found.pop("postgres")
    for receiver in found.values():
        assert all(reaches(sender, receiver, 5000, outside=False) for sender in found.values())
    for receiver in (*found.values(), database):
        for port in (6379, 8265, 5432):
            assert not reaches({"app": "mlflow"}, receiver, port, outside=True)
            allowed = receiver is found["head"] and port == 8265
            assert reaches(OPERATOR, receiver, port, outside=True) == allowed


def test_nothing_enters_from_other_namespaces_but_the_operator() -> None:
    for policy in policies():
        for rule in policy["ingress"]:
            for source in rule["from"]:
                if "namespaceSelector" in source:
                    assert source["podSelector"]["matchLabels"] == {
                        "app.kubernetes.io/name": "kuberay-operator"
                    }
    assert not [
        d for d in rendered() if d["kind"] == "Service" and d["spec"].get("type", "ClusterIP")
        != "ClusterIP"
    ] + [d for d in rendered() if d["kind"] == "Ingress"]  # fmt: skip
