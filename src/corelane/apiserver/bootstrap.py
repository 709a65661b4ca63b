"""What every cluster has from its first moment: four namespaces and the two system priority classes."""

from corelane.apiserver import kinds, pipeline, strategy
from corelane.apiserver.kinds import Kind
from corelane.apiserver.registry import Registry
from corelane.apiserver.requests import Target, WriteOptions
from corelane.apiserver.store import Object

NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_CLASSES = {
    "system-cluster-critical": (
        2_000_000_000,
        (
            "Used for system critical pods that must run in the cluster, "
            "but can be moved to another node if necessary."
        ),
    ),
    "system-node-critical": (
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
}


def default_objects(reg: Registry) -> None:
    """Make what is missing."""
    for name in NAMESPACES:
        _ensure(reg, kinds.NAMESPACES, {"metadata": {"name": name}})
    for name, (value, description) in _CLASSES.items():
        obj = {"metadata": {"name": name}, "value": value, "description": description}
        _ensure(reg, kinds.PRIORITY_CLASSES, obj)


def _ensure(reg: Registry, kind: Kind, obj: Object) -> None:
    name = obj["metadata"]["name"]
    if reg.store.get(kind.stored, name) is None:
        target = Target("", "create", kind.group, kind.version, kind.plural, kind=kind)
        pipeline.create(reg, target, strategy.shaped(kind, kind.version, obj)[0], WriteOptions())
