"""Over how many NUMA nodes a pod's CPUs, memory and devices lie, by what the node aligns at a time."""

from collections.abc import Iterable
from functools import reduce
from operator import or_

from corelane.node.entries import Entry
from corelane.node.ledger import NodeState


def latest_pod_spans(state: NodeState) -> tuple[int, ...]:
    """Return the number of NUMA nodes of each container of the pod that was admitted last.

    A node that aligns whole pods has one number. Containers without CPUs, memory or devices of their own do
    not count.
    """
    if not state.entries:
        return ()
    *_, (uid, _) = state.entries
    masks = [mask for entry in state.of_pod(uid) if (mask := _nodes(state, entry))]
    return (_union(masks).bit_count(),) if masks and _aligns_pods(state) else tuple(map(int.bit_count, masks))


def _aligns_pods(state: NodeState) -> bool:
    return state.config.policy == "pools" or state.config.numa.scope == "pod"


def _nodes(state: NodeState, entry: Entry) -> int:
    """NUMA nodes of an entry, as a mask of ids."""
    numa = zip(state.topology.numa_ids, state.topology.numa, strict=True)
    nodes = sum(1 << node for node, cpus in numa if cpus & entry.cpus.mask)
    if entry.mems is not None:
        nodes |= entry.mems.mask
    for resource, devices in entry.devices.items():
        near = state.config.devices.get(resource, {})
        nodes |= _union(near.get(device, 0) for device in devices if near.get(device, 0).bit_count() == 1)
    return nodes


def _union(masks: Iterable[int]) -> int:
    return reduce(or_, masks, 0)
