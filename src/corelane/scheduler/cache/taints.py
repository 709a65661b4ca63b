"""Taints of a node, those that follow from its conditions included."""

from collections.abc import Iterator

from corelane.kube.meta import condition
from corelane.kube.objects import Node, Taint


def taints_of(node: Node) -> Iterator[Taint]:
    """Yield the node's taints, and those that upstream's node controller derives from its conditions.

    On the embedded server they may be missing, and placement must not depend on them.
    """
    yield from node.spec.taints
    present = {taint.key for taint in node.spec.taints}
    yield from (Taint(key, effect="NoSchedule") for key in _derived_taints(node) if key not in present)


def _derived_taints(node: Node) -> Iterator[str]:
    ready = condition(node.status.conditions, "Ready")
    if ready is not None and ready.status != "True":
        yield f"node.kubernetes.io/{'not-ready' if ready.status == 'False' else 'unreachable'}"
    disk = condition(node.status.conditions, "DiskPressure")
    if disk is not None and disk.status == "True":
        yield "node.kubernetes.io/disk-pressure"
