"""Random cases for volumes: claims bound and unbound, volumes with node affinity, storage classes."""

from random import Random

from support.kube_scheduler import objects
from support.kube_scheduler.objects import HOSTNAME, REGION, ZONE, Object

_SELECTED = "volume.kubernetes.io/selected-node"
_COMPLETED = "pv.kubernetes.io/bind-completed"
_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"


def case(random: Random) -> Object:
    nodes = objects.nodes(random, 2, 5)
    classes = _classes(random)
    pod = objects.pod(random, "p", None, "default")
    claims: list[Object] = []
    volumes: list[Object] = []
    for number in range(3):
        _claim(random, number, nodes, claims, volumes)
    free = range(random.choice([0, 1, 2, 3]))
    volumes += [_volume(random, f"free{number}", nodes, random.choice(["wait", "local"])) for number in free]
    pod["spec"]["volumes"] = [
        {"name": f"v{number}", "persistentVolumeClaim": {"claimName": f"c{number}"}}
        for number in range(random.randint(1, 3))
    ]
    if random.random() < 0.15:
        pod["spec"]["volumes"].append(_other_volume(random))
    placed = objects.placed(random, nodes, 4)
    for one in placed:
        if random.random() < 0.5:
            one["metadata"]["namespace"] = random.choice(["default", "default", "blue"])
            one["spec"]["volumes"] = [
                random.choice(
                    [
                        {"name": "v", "persistentVolumeClaim": {"claimName": f"c{random.randrange(3)}"}},
                        _other_volume(random),
                    ]
                )
            ]
    return {
        "nodes": nodes,
        "pods": placed,
        "pod": pod,
        "claims": claims,
        "volumes": volumes,
        "classes": classes,
    }


def _classes(random: Random) -> list[Object]:
    def made(name: str, mode: str, provisioner: str) -> Object:
        return {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": name},
            "provisioner": provisioner,
            "volumeBindingMode": mode,
        }

    known = [
        made("now", "Immediate", "example.com/disk"),
        made("wait", "WaitForFirstConsumer", "example.com/disk"),
        made("local", "WaitForFirstConsumer", "kubernetes.io/no-provisioner"),
    ]
    zoned = made("zoned", "WaitForFirstConsumer", "example.com/disk")
    zoned["allowedTopologies"] = [
        {"matchLabelExpressions": [{"key": ZONE, "values": random.sample(["z0", "z1", "z2"], 2)}]}
    ]
    if random.random() < 0.4:
        zoned["allowedTopologies"].append(
            {"matchLabelExpressions": [{"key": REGION, "values": ["r0"]}, {"key": ZONE, "values": ["z2"]}]}
        )
    return [*known, zoned]


def _claim(
    random: Random, number: int, nodes: list[Object], claims: list[Object], volumes: list[Object]
) -> None:
    name = f"c{number}"
    kind = random.choice([*["bound"] * 12, *["wait"] * 10, "now", "missing", "lost", "no-volume"])
    if kind == "missing":
        return
    storage_class = {"now": "now", "wait": random.choice(["wait", "local", "zoned"] * 3 + ["absent"])}.get(
        kind, "now"
    )
    claim: Object = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {
            "accessModes": [
                random.choice(["ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod", "ReadOnlyMany"])
            ],
            "resources": {"requests": {"storage": random.choice(["1Gi", "5Gi"])}},
            "storageClassName": storage_class,
            "volumeMode": "Filesystem",
        },
        "status": {"phase": {"bound": "Bound", "lost": "Lost", "no-volume": "Bound"}.get(kind, "Pending")},
    }
    if kind in {"bound", "lost", "no-volume"}:
        claim["spec"]["volumeName"] = f"pv{number}"
        claim["metadata"]["annotations"] = {_COMPLETED: "yes", _BY_CONTROLLER: "yes"}
    if kind == "bound":
        volume = _volume(random, f"pv{number}", nodes, "now", claim)
        volumes.append(volume)
    if kind == "wait" and random.random() < 0.1:
        claim["metadata"]["annotations"] = {_SELECTED: nodes[0]["metadata"]["name"]}
    if random.random() < 0.02:
        claim["metadata"]["deletionTimestamp"] = "2026-11-23T06:00:00Z"
        claim["metadata"]["finalizers"] = ["kubernetes.io/pvc-protection"]
    claims.append(claim)


def _volume(
    random: Random, name: str, nodes: list[Object], storage_class: str, claim: Object | None = None
) -> Object:
    modes = claim["spec"]["accessModes"] if claim else [random.choice(["ReadWriteOnce", "ReadOnlyMany"])]
    volume: Object = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": {}},
        "spec": {
            "capacity": {"storage": random.choice(["1Gi", "5Gi", "10Gi"])},
            "accessModes": list(modes),
            "storageClassName": storage_class,
            "persistentVolumeReclaimPolicy": "Retain",
            "volumeMode": "Filesystem",
            "csi": {"driver": "example.com/disk", "volumeHandle": name},
        },
        "status": {"phase": "Bound" if claim else "Available"},
    }
    if random.random() < 0.65:
        volume["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": _terms(random, nodes)}}
    if random.random() < 0.35:
        key = random.choice([ZONE, REGION, "failure-domain.beta.kubernetes.io/zone"])
        volume["metadata"]["labels"][key] = random.choice(["z0", "z1", "r0", "z0__z2"])
    if claim:
        volume["spec"]["claimRef"] = {
            "kind": "PersistentVolumeClaim",
            "namespace": "default",
            "name": claim["metadata"]["name"],
            "uid": claim["metadata"]["uid"],
        }
    return volume


def _terms(random: Random, nodes: list[Object]) -> list[Object]:
    names = [node["metadata"]["name"] for node in nodes]
    choices = [
        {"key": HOSTNAME, "operator": "In", "values": random.sample(names, random.randint(1, len(names)))},
        {"key": ZONE, "operator": "In", "values": random.sample(["z0", "z1", "z2"], random.randint(1, 2))},
        {"key": REGION, "operator": "NotIn", "values": ["r1"]},
        {"key": ZONE, "operator": "Exists"},
    ]
    return [{"matchExpressions": [random.choice(choices)]} for _ in range(random.randint(1, 2))]


def _other_volume(random: Random) -> Object:
    return random.choice(
        [
            {"name": "x", "emptyDir": {}},
            {"name": "x", "gcePersistentDisk": {"pdName": "disk-1", "readOnly": random.random() < 0.5}},
            {"name": "x", "awsElasticBlockStore": {"volumeID": "vol-1"}},
            {"name": "x", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}},
        ]
    )


def limits(random: Random, node: str) -> Object:
    """How many volumes of `example.com/disk` a node can have."""
    allocatable = random.choice([{}, {"count": 0}, {"count": 1}, {"count": 2}])
    driver = {"name": "example.com/disk", "nodeID": node, "allocatable": allocatable}
    return {"metadata": {"name": node}, "spec": {"drivers": [driver]}}


def driver(random: Random) -> Object:
    spec = {"storageCapacity": random.random() < 0.7}
    return {"metadata": {"name": "example.com/disk"}, "spec": spec}


def capacity(random: Random, number: int) -> Object:
    """Free storage of a class, in a zone or everywhere."""
    made: Object = {
        "metadata": {"name": f"s{number}", "namespace": "kube-system"},
        "storageClassName": ["wait", "zoned"][number % 2],
        "capacity": random.choice(["0", "1Gi", "5Gi", "10Gi"]),
    }
    labels = random.choice([{}, {ZONE: "z0"}, {ZONE: "z1"}, {ZONE: "z2", REGION: "r0"}])
    made["nodeTopology"] = {"matchLabels": labels}
    if random.random() < 0.2:
        made["maximumVolumeSize"] = random.choice(["1Gi", "5Gi"])
    return made


def attachment(random: Random, node: str) -> Object:
    number = random.randrange(3)
    spec = {
        "attacher": "example.com/disk",
        "nodeName": node,
        "source": {"persistentVolumeName": f"pv{number}"},
    }
    return {"metadata": {"name": f"a{number}"}, "spec": spec}
