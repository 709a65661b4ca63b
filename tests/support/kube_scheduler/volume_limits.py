"""Random cases for numbers of volumes and free storage, and a record of kube-scheduler's answers to them.

`python -m support.kube_scheduler.volume_limits ORACLE SEED COUNT FILE.jsonl.gz`: ORACLE is `volume_oracle.go`
built inside the sources of Kubernetes. The file's first line has version, seed and count.
"""

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

from support.kube_scheduler import objects, volumes
from support.kube_scheduler.objects import ZONE, Object

VERSION = "v1.36.2"
DISK = "example.com/disk"
EBS = "ebs.csi.aws.com"
GCE = "pd.csi.storage.gke.io"
_DRIVERS = (DISK, EBS, GCE, "disk.csi.azure.com", "cinder.csi.openstack.org", "pxd.portworx.com")
_MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"
_IN_TREE = ("aws-ebs", "gce-pd", "azure-disk", "cinder", "portworx-volume")
_TOPOLOGY_KEYS = (
    "topology.ebs.csi.aws.com/zone",
    "topology.gke.io/zone",
    "topology.cinder.csi.openstack.org/zone",
)


def cases(seed: int, count: int) -> Iterator[Object]:
    for number in range(count):
        made = {"name": f"volume_limits[{number}]"} | case(Random(f"{seed}/volume_limits/{number}"))
        yield objects.without_empty(made)


def case(random: Random) -> Object:
    made = volumes.case(random)
    nodes, claims, listed, classes = (made[key] for key in ("nodes", "claims", "volumes", "classes"))
    for node in nodes:
        for key in _TOPOLOGY_KEYS:
            if random.random() < 0.5:
                node["metadata"]["labels"][key] = f"z{random.randrange(3)}"
    names = [node["metadata"]["name"] for node in nodes]
    for name, provisioner in (("in-tree", "kubernetes.io/aws-ebs"), ("file", "kubernetes.io/azure-file")):
        classes.append(
            {
                "metadata": {"name": name},
                "provisioner": provisioner,
                "volumeBindingMode": "WaitForFirstConsumer",
            }
        )
    for one in claims:
        if one["spec"]["storageClassName"] in {"wait", "zoned"} and random.random() < 0.25:
            one["spec"]["storageClassName"] = random.choice(["in-tree", "file"])
        if random.random() < 0.06:
            one["spec"]["resources"] = {}
    for one in listed:
        if random.random() < 0.35:
            _take_over(random, one)
    for one in (*made["pods"], made["pod"]):
        if random.random() < 0.5:
            _more_volumes(random, one, claims)
    return made | {
        "csi_nodes": [_csi_node(random, name) for name in names if random.random() < 0.85],
        "csi_drivers": [volumes.driver(random)] if random.random() < 0.8 else [],
        "capacities": [volumes.capacity(random, number) for number in range(random.randint(0, 5))],
        "attachments": _attachments(random, names, listed),
    }


def _csi_node(random: Random, name: str) -> Object:
    drivers = [
        {
            "name": driver,
            "nodeID": name,
            "allocatable": random.choice([{}, *({"count": n} for n in range(4))]),
        }
        for driver in random.sample(_DRIVERS, random.randint(0, len(_DRIVERS)))
    ]
    if random.random() < 0.7:
        drivers = [one for one in drivers if one["name"] != DISK]
        drivers.append({"name": DISK, "nodeID": name, "allocatable": {"count": random.randint(0, 4)}})
    plugins = ",".join(f"kubernetes.io/{one}" for one in random.sample(_IN_TREE, random.randint(0, 5)))
    annotations = {_MIGRATED: plugins} if random.random() < 0.8 else {}
    return {"metadata": {"name": name, "annotations": annotations}, "spec": {"drivers": drivers}}


def _take_over(random: Random, volume: Object) -> None:
    """Have a volume be one of a plugin that a CSI driver took over."""
    spec = volume["spec"]
    del spec["csi"]
    key, source = _in_tree(random)
    spec[key] = source
    if random.random() < 0.5:
        rules = [{"key": ZONE, "operator": "In", "values": random.sample(["z0", "z1", "z2"], 2)}]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": rules}]}}
    elif random.random() < 0.5:
        spec.pop("nodeAffinity", None)
        volume["metadata"]["labels"][ZONE] = random.choice(["z0", "z1__z2", ""])


def _in_tree(random: Random) -> tuple[str, Object]:
    disk = f"{random.randrange(3)}"
    return random.choice(
        [
            ("awsElasticBlockStore", {"volumeID": random.choice([f"vol-{disk}", f"aws://z0/vol-{disk}"])}),
            ("awsElasticBlockStore", {"volumeID": f"aws:///vol-{disk}"}),
            ("gcePersistentDisk", {"pdName": f"d{disk}"}),
            (
                "azureDisk",
                {"diskName": disk, "diskURI": f"/d/{disk}", "kind": random.choice(["Managed", "managed"])},
            ),
            ("cinder", {"volumeID": f"c{disk}"}),
            ("portworxVolume", {"volumeID": f"x{disk}"}),
        ]
    )


def _more_volumes(random: Random, pod: Object, claims: list[Object]) -> None:
    """Volumes in the pod's spec, and an ephemeral one with its claim."""
    listed = pod["spec"].setdefault("volumes", [])
    for number in range(random.randint(0, 2)):
        key, source = _in_tree(random)
        listed.append({"name": f"in{number}", key: source})
    if random.random() < 0.4:
        listed.append({"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}})
        if random.random() < 0.9:
            claims.append(_own_claim(random, pod))


def _own_claim(random: Random, pod: Object) -> Object:
    metadata = pod["metadata"]
    uid = metadata.get("uid", "")
    claim: Object = {
        "metadata": {
            "name": f"{metadata['name']}-own",
            "namespace": metadata.get("namespace", "default"),
            "uid": f"uid-{metadata['name']}-own",
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": uid, "controller": True}
            ],
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": random.choice(["wait", "in-tree"]),
            "volumeMode": "Filesystem",
        },
        "status": {"phase": "Pending"},
    }
    return claim


def _attachments(random: Random, names: list[str], listed: list[Object]) -> list[Object]:
    return [
        {
            "metadata": {"name": f"a{number}"},
            "spec": {
                "attacher": random.choice([DISK, DISK, EBS, ""]),
                "nodeName": random.choice(names),
                "source": {
                    "persistentVolumeName": random.choice([*listed, {"metadata": {"name": "gone"}}])[
                        "metadata"
                    ]["name"]
                },
            },
        }
        for number in range(random.randint(0, 4))
    ]


def record(oracle: str, seed: int, count: int, target: Path) -> int:
    """Write the file and return how many cases it holds."""
    asked = {one["name"]: one for one in cases(seed, count)}
    lines = "\n".join(json.dumps(one, separators=(",", ":")) for one in asked.values())
    run = subprocess.run([oracle], input=lines, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in run.stdout.splitlines()]
    head = {"program": "kube-scheduler", "version": VERSION, "seed": seed, "count": count}
    recorded = [head, *(asked[one.pop("name")] | {"want": one} for one in answers)]
    text = "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in recorded)
    target.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    return len(answers)


if __name__ == "__main__":
    print(record(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])), file=sys.stderr)
