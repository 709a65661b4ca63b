"""CPU requests that were changed in place: what the ledger takes over. No resize moves a container."""

from dataclasses import dataclass, replace

from corelane.cpuset import CPUSet
from corelane.node import NodeState
from corelane.node.ledger import with_entries
from corelane.node.recovery.shortfall import exclusive_counts
from corelane.workload import ContainerRequest, PodRequest, integer_cpus, peak


@dataclass(frozen=True, slots=True)
class Resized:
    """The ledger with the new requests, and the containers that keep what their new requests do not say."""

    ledger: NodeState
    exclusive: tuple[tuple[ContainerRequest, CPUSet], ...] = ()
    """With exclusive CPUs, of another number."""
    shared: tuple[ContainerRequest, ...] = ()
    """In the shared pool, with a request that now is one for exclusive CPUs."""


def follow(ledger: NodeState, request: PodRequest, before: PodRequest) -> Resized:
    """Take over the requests of a pod's containers in a pool; `before` is what was read of the pod last.

    The ledger is compared, as a pod may be resized while no agent runs.
    """
    requests = {one.name: one.cpu_request for one in before.containers}
    counts = exclusive_counts(ledger, request)[1]
    entries, exclusive, shared = dict(ledger.entries), [], []
    for container in request.containers:
        entry, milli = entries.get((request.uid, container.name)), container.cpu_request
        if entry and entry.cpus and entry.sharing.exclusive:
            if requests.get(container.name, milli) != milli:
                exclusive.append((container, entry.cpus))
        elif entry and entry.cpu_request != milli:
            entries[entry.key] = replace(entry, cpu_request=milli)
            if counts.get(container.name) and not integer_cpus(entry.cpu_request):
                shared.append(container)
    if entries != dict(ledger.entries):
        total = peak((one.kind, one.cpu_request) for key, one in entries.items() if key[0] == request.uid)
        ledger = with_entries(ledger, entries, {**ledger.pods, request.uid: total})
    return Resized(ledger, tuple(exclusive), tuple(shared))
