"""CPUs of one node of `up` beside the containers of other corelane instances on this machine.

They keep their CPUs from this instance, and exclusive CPUs that they may use are not confirmed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from corelane.agent.allocation import events
from corelane.agent.allocation.allocation import Allocation
from corelane.agent.allocation.cpu_moves import OccupiedCPUs
from corelane.agent.allocation.events import AgentEvent
from corelane.agent.allocation.instructions import PublishEvent
from corelane.agent.allocation.outbox import AllocationReporter
from corelane.cpuset import CPUSet, named
from corelane.node.entries import Sharing
from corelane.node.ledger import NodeState
from corelane.node.recovery.unplaced import OTHERS, OtherContainer, hold_others

_MOST_NAMES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class OthersSeen(events.AgentEvent):
    """Every running container of other corelane instances on this machine."""

    containers: tuple[OtherContainer, ...]


class SharedMachineAllocation(Allocation):
    """The CPUs of one node on a machine that other instances may use as well."""

    def __init__(
        self, ledger: NodeState, *, reporter: AllocationReporter, validate: bool, follows_kubelet: bool
    ) -> None:
        super().__init__(ledger, reporter=reporter, validate=validate, follows_kubelet=follows_kubelet)
        self._others: tuple[OtherContainer, ...] = ()
        self._handlers[OthersSeen] = self._others_seen

    def is_routine(self, event: AgentEvent) -> bool:
        if isinstance(event, OthersSeen):
            return event.containers == self._others and self._held() is self.ledger
        return super().is_routine(event)

    def occupied(self) -> OccupiedCPUs:
        occupied = super().occupied()
        for other in self._holders():
            alone = other.cpus.isdisjoint(self.ledger.reserved) and not other.cpus >= self.ledger.shared_pool
            occupied.add(other.cpus, Sharing.ALONE if alone else Sharing.POOL, OTHERS)
        return occupied

    def not_exclusive(self, cpus: CPUSet) -> str:
        """Return why CPUs may be used by what corelane does not confine; "" if it sees nothing there.

        A process beside all containers counts if it keeps off the reserved CPUs: then these are its CPUs. One
        that may use reserved CPUs, too, is the machine's.
        """
        for other in self._others:
            is_pinned = other.kind != "process" or other.cpus.isdisjoint(self.ledger.reserved)
            if is_pinned and not other.cpus.isdisjoint(cpus):
                where = named((other.cpus & cpus).mask)
                if other.kind == "unseen":
                    remedy = "--other-instances ignore leaves them out"
                    return f"{other.owner} cannot be seen, and may use {where}; {remedy}"
                what = {"container": "container ", "claim": "alleged container "}.get(other.kind, "")
                return f"{what}{other.title} of {other.owner} may use {where}"
        return ""

    def _others_seen(self, event: OthersSeen) -> None:
        """Hold the CPUs of other instances' containers; what changed becomes an event of the Node."""
        before, self._others = _instances(self._others), event.containers
        after = _instances(self._others)
        if {(other.owner, other.cpus) for other in before} != {(other.owner, other.cpus) for other in after}:
            text = (
                others_text(after)
                or "no container of another corelane instance runs on this machine any more"
            )
            reason = "OtherInstances" if after else "OtherInstancesGone"
            self.outbox.put(PublishEvent("", reason, text, warning=bool(after)))
        self.ledger = self._held()
        for run in self.runs():
            if run.seen and run.pending is None:
                self.confirm(run, event.now)

    def _held(self) -> NodeState:
        """Return the ledger with the CPUs of other instances; the same one where it has them."""
        return hold_others(self.ledger, [(other.owner, other.cpus) for other in self._holders()])

    def _holders(self) -> list[OtherContainer]:
        """Return the containers of other instances that keep their CPUs from this one."""
        return [other for other in self._others if other.kind == "container"]


def _instances(others: Iterable[OtherContainer]) -> list[OtherContainer]:
    """Return the containers among processes of other owners."""
    return [other for other in others if other.kind in ("container", "claim")]


def others_text(others: Iterable[OtherContainer]) -> str:
    """Return which containers of other instances run, on which CPUs, and what follows; "" without any."""
    containers = _instances(others)
    claims = [other for other in containers if other.kind == "claim"]
    sentences = []
    if held := [other for other in containers if other.kind == "container"]:
        sentences.append(
            f"containers of other corelane instances run on this machine: {_listed(held)}. Their CPUs are "
            "not allocated exclusively here, and exclusive CPUs that they may use are not confirmed; to end "
            "them: corelane down --data-dir DIRECTORY, or --instance NAME where no directory is shown"
        )
    if claims:
        sentences.append(
            f"processes of other users look like containers of corelane: {_listed(claims)}. They take no "
            "CPUs from this instance; exclusive CPUs that they may use are not confirmed"
        )
    return ". ".join(sentences)


def _listed(others: Sequence[OtherContainer]) -> str:
    titles = [f"{other.title} of {other.owner} on {named(other.cpus.mask)}" for other in others]
    more = f" and {len(titles) - _MOST_NAMES} more" if len(titles) > _MOST_NAMES else ""
    return "; ".join(titles[:_MOST_NAMES]) + more
