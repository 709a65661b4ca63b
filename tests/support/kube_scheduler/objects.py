"""Random Kubernetes objects: nodes, pods and the parts that most families use."""

from random import Random
from typing import Any, Final

Object = dict[str, Any]

ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
HOSTNAME: Final = "kubernetes.io/hostname"
NAMESPACES: Final = ("default", "blue", "red")
APPS: Final = ("web", "db", "job")
VERSIONS: Final = ("v1", "v2")


def without_empty(value: Any) -> Any:
    """Drop what is None, and empty lists at the top: shorter files, same objects."""
    return {key: part for key, part in value.items() if part is not None and part != []}


def node(random: Random, number: int) -> Object:
    name = f"n{number}"
    labels = {HOSTNAME: name}
    if random.random() < 0.93:
        labels[ZONE] = f"z{random.randrange(3)}"
    if random.random() < 0.9:
        labels[REGION] = f"r{random.randrange(2)}"
    if random.random() < 0.6:
        labels["disk"] = random.choice(["ssd", "hdd"])
    if random.random() < 0.6:
        labels["size"] = random.choice(["1", "2", "5", "10", "-3", "0x5", "big", "007"])
    allocatable = {
        "cpu": random.choice(["4", "8", "7500m", "16"]),
        "memory": random.choice(["8Gi", "16Gi", "16000M", "33554432Ki"]),
        "pods": random.choice(["110"] * 9 + ["3"]),
        "ephemeral-storage": random.choice(["100Gi", "20Gi"]),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels},
        "spec": {},
        "status": {
            "allocatable": allocatable,
            "capacity": dict(allocatable),
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def nodes(random: Random, least: int = 2, most: int = 6) -> list[Object]:
    return [node(random, number) for number in range(random.randint(least, most))]


def requests(random: Random) -> Object:
    asked: Object = {}
    if random.random() < 0.8:
        asked["cpu"] = random.choice(["100m", "500m", "1", "1500m", "2", "3"])
    if random.random() < 0.8:
        asked["memory"] = random.choice(["64Mi", "1Gi", "3Gi", "500M"])
    return asked


def container(name: str, asked: Object | None = None, **more: Any) -> Object:
    resources = {"requests": asked} if asked else {}
    return {"name": name, "image": f"{name}:1", "resources": resources} | more


def pod(random: Random, name: str, node: str | None = None, namespace: str | None = None) -> Object:
    """A pod with some labels and one container; placed on the node if one is given."""
    labels: Object = {}
    if random.random() < 0.9:
        labels["app"] = random.choice(APPS)
    if random.random() < 0.6:
        labels["version"] = random.choice(VERSIONS)
    spec: Object = {"containers": [container("c", requests(random))]}
    if node is not None:
        spec["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace or random.choice(["default", *NAMESPACES]),
            "uid": f"uid-{name}",
            "labels": labels,
        },
        "spec": spec,
        "status": {"phase": "Running" if node else "Pending"},
    }


def placed(random: Random, nodes: list[Object], most: int = 8, name: str = "e") -> list[Object]:
    """Pods that are on nodes already."""
    return [
        pod(random, f"{name}{number}", random.choice(nodes)["metadata"]["name"])
        for number in range(random.randint(0, most))
    ]


def namespaces(random: Random) -> list[Object]:
    """The namespaces; teams differ, for namespace selectors."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/metadata.name": name}
                | ({"team": random.choice(["a", "b"])} if random.random() < 0.8 else {}),
            },
        }
        for name in NAMESPACES
    ]


def selector(random: Random) -> Object | None:
    """A label selector: None selects nothing, {} everything."""
    kind = random.random()
    if kind < 0.04:
        return None
    if kind < 0.1:
        return {}
    if kind < 0.5:
        return {"matchLabels": {"app": random.choice(APPS)}}
    expressions = [expression(random) for _ in range(random.randint(1, 2))]
    found: Object = {"matchExpressions": expressions}
    if random.random() < 0.3:
        found["matchLabels"] = {"version": random.choice(VERSIONS)}
    return found


def expression(random: Random) -> Object:
    key, values = random.choice([("app", APPS)] * 4 + [("version", VERSIONS)] * 4 + [("missing", ("x",))])
    operator = random.choice(["In", "In", "NotIn", "Exists", "DoesNotExist"])
    if operator in {"Exists", "DoesNotExist"}:
        return {"key": key, "operator": operator}
    return {"key": key, "operator": operator, "values": random.sample(values, random.randint(1, len(values)))}


def namespace_selector(random: Random) -> Object:
    return random.choice(
        [
            {},
            {"matchLabels": {"team": "a"}},
            {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
            {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]},
        ]
    )
