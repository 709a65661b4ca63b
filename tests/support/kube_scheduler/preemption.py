"""Random cases for preemption: full nodes, pods of lower priority, budgets, nominated pods."""

from random import Random

from support.kube_scheduler import objects, pods
from support.kube_scheduler.objects import APPS, HOSTNAME, ZONE, Object

_CAUSES = ("resources", "resources", "resources", "ports", "anti_affinity", "spread", "mixture")


def case(random: Random) -> Object:
    nodes = objects.nodes(random, 1, 5)
    for node in nodes:
        node["status"]["allocatable"] |= {"cpu": "4", "memory": "8Gi", "pods": "110"}
        if random.random() < 0.1:
            node["spec"]["taints"] = [{"key": "gpu", "effect": "NoSchedule"}]
    cause = random.choice(_CAUSES)
    placed = [_victim(random, f"e{number}", node, cause) for number, node in enumerate(_spots(random, nodes))]
    pod = _preemptor(random, cause)
    nominated = [_nominated(random, nodes, number) for number in range(random.choice([0, 0, 0, 1, 2]))]
    budgets = [_budget(random, number) for number in range(random.choice([0, 1, 2, 2, 3, 3]))]
    if random.random() < 0.1:
        pod["status"]["nominatedNodeName"] = random.choice(nodes)["metadata"]["name"]
    return {
        "nodes": nodes,
        "pods": placed,
        "pod": pod,
        "nominated": nominated,
        "budgets": budgets,
        "namespaces": objects.namespaces(random),
    }


def _spots(random: Random, nodes: list[Object]) -> list[str]:
    """Node names, several times each."""
    return [node["metadata"]["name"] for node in nodes for _ in range(random.randint(3, 7))]


def _victim(random: Random, name: str, node: str, cause: str) -> Object:
    pod = objects.pod(random, name, node, random.choice(["default", "default", "blue"]))
    asked = {
        "cpu": random.choice(["500m", "500m", "1", "1", "1500m"]),
        "memory": random.choice(["512Mi", "1Gi"]),
    }
    pod["spec"]["containers"] = [objects.container("c", asked)]
    if random.random() < 0.9:
        pod["spec"]["priority"] = random.choice([-10, 0, 0, 0, 5, 5, 100])
    if random.random() < 0.9:
        pod["status"]["startTime"] = f"2026-11-2{random.randrange(3)}T0{random.randrange(5)}:00:00Z"
    if cause in {"ports", "mixture"} and random.random() < 0.6:
        pods.add_ports(random, pod)
    if cause in {"anti_affinity", "mixture"} and random.random() < 0.3:
        pod["spec"]["affinity"] = {"podAntiAffinity": _anti_affinity(random)}
    if random.random() < 0.08:
        pod["metadata"]["deletionTimestamp"] = "2026-11-23T06:00:00Z"
        pod["status"]["conditions"] = [
            {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        ]
    return pod


def _anti_affinity(random: Random) -> Object:
    term = {
        "topologyKey": random.choice([HOSTNAME, HOSTNAME, ZONE]),
        "labelSelector": {"matchLabels": {"app": random.choice(APPS)}},
    }
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def _preemptor(random: Random, cause: str) -> Object:
    pod = objects.pod(random, "p", None, "default")
    pod["spec"]["priority"] = random.choice([1, 7, 50, 50, 50, 1000, 1000])
    if cause in {"resources", "mixture"}:
        asked = {"cpu": random.choice(["1", "2", "3", "3", "4"]), "memory": random.choice(["1Gi", "4Gi"])}
        pod["spec"]["containers"] = [objects.container("c", asked)]
    else:
        pod["spec"]["containers"] = [objects.container("c", {"cpu": "100m"})]
    if cause in {"ports", "mixture"}:
        pods.add_ports(random, pod)
    if cause in {"anti_affinity", "mixture"}:
        pod["spec"]["affinity"] = {"podAntiAffinity": _anti_affinity(random)}
    if cause in {"spread", "mixture"}:
        pods.add_spread(random, pod)
    if random.random() < 0.06:
        pod["spec"]["preemptionPolicy"] = "Never"
    return pod


def _nominated(random: Random, nodes: list[Object], number: int) -> Object:
    pod = objects.pod(random, f"m{number}", None, "default")
    pod["spec"]["priority"] = random.choice([0, 50, 60, 2000])
    pod["spec"]["containers"] = [objects.container("c", {"cpu": random.choice(["500m", "1"])})]
    pod["status"]["nominatedNodeName"] = random.choice(nodes)["metadata"]["name"]
    return pod


def _budget(random: Random, number: int) -> Object:
    namespace = random.choice(["default", "default", "blue"])
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": f"b{number}", "namespace": namespace},
        "spec": {
            "minAvailable": 1,
            "selector": random.choice([{}, {"matchLabels": {"app": random.choice(APPS)}}, None]),
        },
        "status": objects.without_empty(
            {
                "disruptionsAllowed": random.choice([0, 0, 0, 1, 2]),
                "currentHealthy": 2,
                "desiredHealthy": 1,
                "expectedPods": 2,
                "disruptedPods": random.choice([None, {f"e{random.randrange(4)}": "2026-11-23T06:00:00Z"}]),
            }
        ),
    }
