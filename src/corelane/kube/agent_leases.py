"""Which nodes' agents run, as far as the scheduler knows: by the Leases that they renew.

An agent is judged only where its published ledger says that it renews a Lease: other agents, former versions
and simulated nodes have none. It counts as running for the Lease's duration after the scheduler *saw* the
Lease change, as in leader election: no two clocks are compared, and a scheduler that starts gives every agent
that long. While Leases cannot be watched, or the process stood still, no time passes. An agent that ends in
an orderly way gives its Lease up: then it counts as ended at once.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final

from corelane.kube import keys
from corelane.kube.objects import Lease
from corelane.reasons import Code, Reason

DURATION: Final = 40.0
"""Seconds for an agent whose Lease was not seen yet."""
_SHORTEST: Final = 5.0
_LONGEST: Final = 600.0
"""Limits of a Lease's duration."""
CHECK_SECONDS: Final = 2.0
"""Between two looks at what has expired."""
_STOOD_STILL: Final = 3 * CHECK_SECONDS


class Agents:
    """The agents' Leases by node; times are monotonic."""

    def __init__(self) -> None:
        self._leases: dict[str, Lease] = {}
        self._until: dict[str, float] = {}
        """When the agents of nodes that are judged expire, unless they are seen again."""
        self._gone: dict[str, Reason] = {}
        self._watched = True
        self._checked_at = 0.0

    def fault(self, node: str) -> Reason | None:
        """Return why the node's agent counts as ended; None where it runs, or is not judged."""
        return self._gone.get(node)

    def faults(self) -> Mapping[str, Reason]:
        """Return the nodes whose agents count as ended, with the reason."""
        return self._gone

    def judge(self, node: str, now: float, *, leased: bool) -> None:
        """Judge a node by its Lease from now on, or no longer."""
        if not leased:
            self._until.pop(node, None)
            self._gone.pop(node, None)
        elif node not in self._until:
            if not self._until:
                self._checked_at = now
            self._until[node] = now + _duration(self._leases.get(node))
            self._settle(node)

    def put(self, node: str, lease: Lease | None, now: float) -> None:
        """Take note of a Lease that changed, or was deleted."""
        if lease is None:
            self._leases.pop(node, None)
            if node in self._until:  # an agent that runs creates it again
                self._until[node] = min(self._until[node], now + DURATION)
        else:
            self._leases[node] = lease
            if node in self._until:
                self._until[node] = now + _duration(lease)
        self._settle(node)

    def watch(self, now: float, *, works: bool) -> None:
        """Take note that changes of Leases are seen from now on, or are not."""
        if works and not self._watched:
            self._extend(now)
        self._watched = works

    def next_time(self) -> float | None:
        """Return when `expire` is to be called; None for not at all."""
        return self._checked_at + CHECK_SECONDS if self._until else None

    def expire(self, now: float) -> Iterator[str]:
        """Yield the nodes whose agents count as ended from now on."""
        due = self.next_time()
        if due is None or now < due:
            return
        if now - due > _STOOD_STILL:
            self._extend(now)
        self._checked_at = now
        if not self._watched:
            return
        for node in [node for node, until in self._until.items() if until <= now and node not in self._gone]:
            self._gone[node] = self._reason(node)
            yield node

    def _extend(self, now: float) -> None:
        """Give those that have not expired the whole time again: their renewals were not seen."""
        for node, until in self._until.items():
            if node not in self._gone:
                self._until[node] = max(until, now + _duration(self._leases.get(node)))

    def _settle(self, node: str) -> None:
        """An agent is back with any change of its Lease, and gone once it gave the Lease up."""
        lease = self._leases.get(node)
        if node not in self._until or lease is None:
            return
        if lease.spec.holder_identity:
            self._gone.pop(node, None)
        else:
            self._gone[node] = self._reason(node)

    def _reason(self, node: str) -> Reason:
        lease = self._leases.get(node)
        name = f"{keys.AGENT_NAMESPACE}/{node}"
        if lease is None:
            return Reason(Code.AGENT_LEASE_MISSING, (name,))
        spec = lease.spec
        if not spec.holder_identity:
            return Reason(Code.AGENT_LEASE_RELEASED, (name, spec.renew_time))
        return Reason(Code.AGENT_LEASE_EXPIRED, (name, spec.renew_time, spec.lease_duration_seconds))


def judged(nodes: Iterable[str], leases: Iterable[Lease], at: datetime) -> Agents:
    """Return the agents of nodes that renew Leases, as a reader of one moment can judge them.

    Such a reader can only compare the time of the last renewal with its own clock, `at`.
    """
    by_node = {lease.metadata.name: lease for lease in leases}
    agents = Agents()
    for name in nodes:
        lease, age = by_node.get(name), DURATION
        if lease:
            try:
                age = max(0.0, (at - datetime.fromisoformat(lease.spec.renew_time)).total_seconds())
            except (ValueError, TypeError):
                age = 0.0
        agents.judge(name, 0.0, leased=True)
        agents.put(name, lease, -age)
    for _ in agents.expire(CHECK_SECONDS):
        pass
    return agents


def _duration(lease: Lease | None) -> float:
    if lease is None or not lease.spec.lease_duration_seconds:
        return DURATION
    return min(max(float(lease.spec.lease_duration_seconds), _SHORTEST), _LONGEST)
