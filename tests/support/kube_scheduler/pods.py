"""Random cases for what a pod can say about nodes and about other pods."""

from random import Random
from typing import Any

from support.kube_scheduler import objects
from support.kube_scheduler.objects import HOSTNAME, REGION, ZONE, Object


def _pod(random: Random) -> Object:
    return objects.pod(random, "p")


# Node affinity.


def _node_expression(random: Random, numbers: tuple[str, ...]) -> Object:
    key = random.choice(["disk", "size", "size", ZONE, REGION, "missing"])
    operator = random.choice(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
    if operator in {"Exists", "DoesNotExist"}:
        return {"key": key, "operator": operator}
    if operator in {"Gt", "Lt"}:
        return {"key": "size", "operator": operator, "values": [random.choice(numbers)]}
    values = {
        "disk": ["ssd", "hdd"],
        "size": ["1", "5", "big"],
        ZONE: ["z0", "z1", "z2"],
        REGION: ["r0", "r1"],
    }
    known = values.get(key, ["x", ""])
    return {"key": key, "operator": operator, "values": random.sample(known, random.randint(1, len(known)))}


def _node_field(random: Random) -> Object:
    return {
        "key": "metadata.name",
        "operator": random.choice(["In", "In", "NotIn"]),
        "values": [f"n{random.randrange(4)}"],
    }


def _node_term(random: Random, numbers: tuple[str, ...] = ("1", "4", "7")) -> Object:
    term: Object = {}
    if random.random() < 0.85:
        term["matchExpressions"] = [_node_expression(random, numbers) for _ in range(random.randint(1, 2))]
    if random.random() < 0.25:
        term["matchFields"] = [_node_field(random)]
    return term


def _node_affinity(random: Random) -> Object:
    affinity: Object = {}
    if random.random() < 0.7:
        # Neither "-5" (not a label value) nor "0x2" (not an integer) can match: such a term matches nothing.
        terms = [_node_term(random, ("1", "4", "7", "-5", "0x2")) for _ in range(random.randint(1, 3))]
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    if random.random() < 0.6:
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": random.randint(1, 100), "preference": _node_term(random)}
            for _ in range(random.randint(1, 3))
        ]
    return affinity


def add_node_affinity(random: Random, pod: Object) -> None:
    if random.random() < 0.8:
        pod["spec"].setdefault("affinity", {})["nodeAffinity"] = _node_affinity(random)
    if random.random() < 0.35:
        pod["spec"]["nodeSelector"] = random.choice(
            [{"disk": "ssd"}, {ZONE: "z0"}, {HOSTNAME: "n1"}, {"disk": "hdd", REGION: "r0"}]
        )
    if random.random() < 0.04:
        pod["spec"]["nodeName"] = random.choice(["n0", "n9"])


def node_affinity(random: Random) -> Object:
    pod = _pod(random)
    add_node_affinity(random, pod)
    return {"nodes": objects.nodes(random), "pod": pod}


# Taints.

_KEYS = ("gpu", "team", "node.kubernetes.io/not-ready", "node.kubernetes.io/unschedulable")
_EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")


def _taint(random: Random) -> Object:
    taint = {"key": random.choice(_KEYS), "effect": random.choice(_EFFECTS)}
    if random.random() < 0.7:
        taint["value"] = random.choice(["a", "b", ""])
    return taint


def _toleration(random: Random) -> Object:
    toleration: Object = {}
    if random.random() < 0.9:
        toleration["key"] = random.choice(_KEYS)
    toleration["operator"] = random.choice(["Equal", "Exists", None]) if "key" in toleration else "Exists"
    if toleration["operator"] != "Exists" and random.random() < 0.8:
        toleration["value"] = random.choice(["a", "b"])
    if random.random() < 0.6:
        toleration["effect"] = random.choice(_EFFECTS)
        if toleration["effect"] == "NoExecute" and random.random() < 0.5:
            toleration["tolerationSeconds"] = 30
    return objects.without_empty(toleration)


def add_taints(random: Random, nodes: list[Object], pod: Object) -> None:
    for node in nodes:
        taints = [_taint(random) for _ in range(random.choice([0, 0, 1, 1, 2, 3]))]
        if random.random() < 0.15:
            node["spec"]["unschedulable"] = True
            if random.random() < 0.7:
                taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
        if taints:
            node["spec"]["taints"] = taints
    if tolerations := [_toleration(random) for _ in range(random.randint(0, 4))]:
        pod["spec"]["tolerations"] = tolerations


def taints(random: Random) -> Object:
    nodes, pod = objects.nodes(random), _pod(random)
    add_taints(random, nodes, pod)
    return {"nodes": nodes, "pod": pod}


# Resources.

_EXTENDED = "example.com/gpu"


def _asked(random: Random) -> Object:
    asked = objects.requests(random)
    if random.random() < 0.15:
        asked[_EXTENDED] = random.choice(["1", "2"])
    if random.random() < 0.15:
        asked["ephemeral-storage"] = random.choice(["1Gi", "9Gi"])
    if random.random() < 0.1:
        asked["hugepages-2Mi"] = "64Mi"
        asked.setdefault("memory", "64Mi")
        asked.setdefault("cpu", "100m")
    return asked


def _resources(random: Random, asked: Object) -> Object:
    limits = {key: value for key, value in asked.items() if key == _EXTENDED or key.startswith("hugepages")}
    if random.random() < 0.15:
        # Without a memory limit the pod is not Guaranteed: which CPUs it gets is not asked here.
        limits |= {"cpu": "3"}
        asked = {key: value for key, value in asked.items() if random.random() < 0.7 or key not in limits}
        asked |= {key: value for key, value in limits.items() if key not in asked}
    return objects.without_empty({"requests": asked or None, "limits": limits or None})


def _containers(random: Random, prefix: str, count: int) -> list[Object]:
    return [
        objects.container(f"{prefix}{number}") | {"resources": _resources(random, _asked(random))}
        for number in range(count)
    ]


def _init_containers(random: Random) -> list[Object]:
    made = _containers(random, "i", random.randint(1, 3))
    for one in made:
        if random.random() < 0.5:
            one["restartPolicy"] = "Always"
    return made


def add_resources(random: Random, pod: Object) -> None:
    spec = pod["spec"]
    spec["containers"] = _containers(random, "c", random.randint(1, 3))
    if random.random() < 0.4:
        spec["initContainers"] = _init_containers(random)
    if random.random() < 0.2:
        spec["overhead"] = {"cpu": "250m", "memory": "120Mi"}
    if random.random() < 0.15:
        _pod_level(random, pod)


def _pod_level(random: Random, pod: Object) -> None:
    """Requests of the whole pod: no less than its containers' sum, which validation demands."""
    asked = {"cpu": random.choice(["10", "12"]), "memory": random.choice(["12Gi", "14Gi"])}
    for key in random.sample(sorted(asked), random.randint(0, 1)):
        del asked[key]
    pod["spec"]["resources"] = {"requests": asked}


def _resized(random: Random, pod: Object) -> None:
    """A pod that is resized in place: its status has what is allocated."""
    allocated = {"cpu": random.choice(["1", "4"]), "memory": random.choice(["1Gi", "4Gi"])}
    name = pod["spec"]["containers"][0]["name"]
    pod["status"]["containerStatuses"] = [
        {"name": name, "ready": True, "restartCount": 0, "image": "c:1", "imageID": "c:1"}
        | {"allocatedResources": allocated, "resources": {"requests": dict(allocated)}}
    ]
    if random.random() < 0.3:
        pod["status"]["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]


def resources(random: Random) -> Object:
    nodes = objects.nodes(random)
    for node in nodes:
        if random.random() < 0.3:
            for where in ("allocatable", "capacity"):
                node["status"][where][_EXTENDED] = "2"
                node["status"][where]["hugepages-2Mi"] = "128Mi"
    placed = objects.placed(random, nodes, 10)
    for pod in placed:
        if random.random() < 0.6:
            add_resources(random, pod)
        if random.random() < 0.15:
            _resized(random, pod)
    pod = _pod(random)
    add_resources(random, pod)
    return {"nodes": nodes, "pods": placed, "pod": pod}


# Host ports.


def _port(random: Random) -> Object:
    port: Object = {"containerPort": 80, "protocol": random.choice(["TCP", "TCP", "UDP", "SCTP"])}
    if random.random() < 0.85:
        port["hostPort"] = random.choice([80, 80, 443, 8080])
    if random.random() < 0.5:
        port["hostIP"] = random.choice(["0.0.0.0", "127.0.0.1", "10.0.0.1", "::", "::1"])
    return port


def add_ports(random: Random, pod: Object) -> None:
    pod["spec"]["containers"][0]["ports"] = [_port(random) for _ in range(random.randint(1, 3))]
    if random.random() < 0.2:
        init = objects.container("i") | {"ports": [_port(random)]}
        if random.random() < 0.5:
            init["restartPolicy"] = "Always"
        pod["spec"]["initContainers"] = [init]
    if random.random() < 0.1:
        pod["spec"]["hostNetwork"] = True
        for port in pod["spec"]["containers"][0]["ports"]:
            port["hostPort"] = port["containerPort"]


def ports(random: Random) -> Object:
    nodes = objects.nodes(random)
    placed = objects.placed(random, nodes, 6)
    for one in placed:
        if random.random() < 0.8:
            add_ports(random, one)
    pod = _pod(random)
    add_ports(random, pod)
    return {"nodes": nodes, "pods": placed, "pod": pod}


# Affinity between pods.


def _pod_term(random: Random) -> Object:
    term: Object = {"topologyKey": random.choice([*[HOSTNAME, ZONE, ZONE, REGION] * 4, "missing"])}
    term["labelSelector"] = objects.selector(random)
    if random.random() < 0.3:
        term["namespaces"] = random.sample(objects.NAMESPACES, random.randint(1, 2))
    if random.random() < 0.25:
        term["namespaceSelector"] = objects.namespace_selector(random)
    if random.random() < 0.2 and term["labelSelector"] is not None:
        keys = [key for key in ("version",) if "version" not in json_keys(term["labelSelector"])]
        if keys:
            term[random.choice(["matchLabelKeys", "matchLabelKeys", "mismatchLabelKeys"])] = keys
    return objects.without_empty(term)


def json_keys(selector: Object) -> set[str]:
    """The label keys that a selector looks at."""
    named = {one["key"] for one in selector.get("matchExpressions", [])}
    return named | set(selector.get("matchLabels", {}))


def _pod_affinity(random: Random, required: float, preferred: float, most: int) -> Object:
    affinity: Object = {}
    if random.random() < required:
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = [
            _pod_term(random) for _ in range(random.randint(1, most))
        ]
    if random.random() < preferred:
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": random.randint(1, 100), "podAffinityTerm": _pod_term(random)}
            for _ in range(random.randint(1, most))
        ]
    return affinity


def add_pod_affinity(random: Random, pod: Object, *, most: int = 2) -> None:
    for kind, chance in (("podAffinity", 0.4), ("podAntiAffinity", 0.7)):
        if affinity := random.random() < chance and _pod_affinity(random, 0.6, 0.4, most):
            pod["spec"].setdefault("affinity", {})[kind] = affinity


def inter_pod_affinity(random: Random) -> Object:
    nodes = objects.nodes(random, 3)
    placed = objects.placed(random, nodes, 8)
    for one in placed:
        if random.random() < 0.4:
            add_pod_affinity(random, one, most=1)
        if random.random() < 0.08:
            one["metadata"]["deletionTimestamp"] = "2026-11-23T06:00:00Z"
    pod = _pod(random)
    add_pod_affinity(random, pod)
    return {"nodes": nodes, "pods": placed, "namespaces": objects.namespaces(random), "pod": pod}


# Topology spread.


def _constraint(random: Random) -> Object:
    hard = random.random() < 0.65
    constraint: Object = {
        "maxSkew": random.choice([1, 1, 2, 3]),
        "topologyKey": random.choice([*[HOSTNAME, ZONE, ZONE, REGION] * 4, "missing"]),
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
        "labelSelector": objects.selector(random),
    }
    if hard and random.random() < 0.3:
        constraint["minDomains"] = random.choice([1, 2, 3, 4])
    for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if random.random() < 0.3:
            constraint[policy] = random.choice(["Honor", "Ignore"])
    selector = constraint["labelSelector"]
    if selector is not None and random.random() < 0.25 and "version" not in json_keys(selector):
        constraint["matchLabelKeys"] = random.choice([["version"], ["version", "absent"]])
    return objects.without_empty(constraint)


def add_spread(random: Random, pod: Object) -> None:
    made: dict[tuple[str, str], Object] = {}
    for _ in range(random.randint(1, 3)):
        one = _constraint(random)
        made[one["topologyKey"], one["whenUnsatisfiable"]] = one
    pod["spec"]["topologySpreadConstraints"] = list(made.values())


def _service(random: Random, number: int) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"s{number}", "namespace": random.choice(objects.NAMESPACES)},
        "spec": {"selector": {"app": random.choice(objects.APPS)}},
    }


def topology_spread(random: Random) -> Object:
    nodes = objects.nodes(random, 3)
    pod = _pod(random)
    if random.random() < 0.85:
        add_spread(random, pod)
    if random.random() < 0.3:
        add_taints(random, nodes, pod)
    if random.random() < 0.3:
        add_node_affinity(random, pod)
        pod["spec"].pop("nodeName", None)
    placed = objects.placed(random, nodes, 14)
    for one in placed:
        if random.random() < 0.8:
            one["metadata"]["namespace"] = pod["metadata"]["namespace"]
        if random.random() < 0.08:
            one["metadata"]["deletionTimestamp"] = "2026-11-23T06:00:00Z"
    services = [_service(random, number) for number in range(random.choice([0, 0, 1, 2]))]
    return {"nodes": nodes, "pods": placed, "services": services, "pod": pod}


# Images.

_IMAGES = ("web:1", "registry.example/db:2", "big", "tiny:latest")


def images(random: Random) -> Object:
    nodes = objects.nodes(random, 3)
    for node in nodes:
        held = random.sample(_IMAGES, random.randint(0, 4))
        sizes = [30_000_000, 200_000_000, 700_000_000, 3_000_000_000]
        node["status"]["images"] = [
            {"names": [image if ":" in image else f"{image}:latest"], "sizeBytes": random.choice(sizes)}
            for image in held
        ]
    pod = _pod(random)
    pod["spec"]["containers"] = [
        objects.container(f"c{number}") | {"image": random.choice(_IMAGES)}
        for number in range(random.randint(1, 3))
    ]
    if random.random() < 0.3:
        pod["spec"]["initContainers"] = [objects.container("i") | {"image": random.choice(_IMAGES)}]
    return {"nodes": nodes, "pod": pod}


# Everything at once.


def mixed(random: Random) -> Object:
    case: dict[str, Any] = resources(random)
    nodes, placed, pod = case["nodes"], case["pods"], case["pod"]
    for one in placed:
        if random.random() < 0.2:
            add_ports(random, one)
        if random.random() < 0.25:
            add_pod_affinity(random, one, most=1)
    steps = (add_node_affinity, add_ports, add_pod_affinity, add_spread)
    for step in random.sample(steps, random.randint(1, 3)):
        step(random, pod)
    if random.random() < 0.4:
        add_taints(random, nodes, pod)
    pod["spec"].pop("nodeName", None)
    return case | {"namespaces": objects.namespaces(random)}
