"""What the core has to say while it handles one event: instructions, and whose status to look at."""

from collections.abc import Callable
from typing import Final

from corelane.agent import messages, status
from corelane.agent.messages import Instruction
from corelane.agent.pods import Container, Pod, Reason
from corelane.node import NodeState
from corelane.node.pools.binding import INSUFFICIENT_CPUS

ONCE: Final = frozenset({"ImageIgnored"})
"""Reasons of warnings that one pod hears for all."""


class Outbox:
    """Instructions in the order in which they are to be carried out."""

    def __init__(self, place: status.Place) -> None:
        self._place = place
        self._orders: list[Instruction] = []
        self._changed: set[str] = set()
        self._warned: set[str] = set()

    def put(self, order: Instruction) -> None:
        self._orders.append(order)

    def take(self) -> list[Instruction]:
        """All instructions so far; what follows is a new batch."""
        orders, self._orders = self._orders, []
        return orders

    def touch(self, pod: Pod) -> None:
        """The pod's status may have changed."""
        self._changed.add(pod.uid)

    def publish_touched(self, find: Callable[[str], Pod | None], at: float) -> None:
        """Publish every status that did change."""
        touched, self._changed = self._changed, set()
        for uid in touched:
            pod = find(uid)
            if pod:
                self.publish(pod, at)

    def publish(self, pod: Pod, at: float) -> None:
        """Write a pod's status, unless it is there already, or is none of ours any more."""
        if not pod.present or pod.plan.ended:
            return
        now = status.of(pod, at, self._place)
        if now != pod.published:
            pod.published = now
            self.put(messages.PublishStatus(pod.uid, now))

    def delete(self, pod: Pod) -> None:
        """Have the API server forget a pod that has ended; asked for once."""
        if not pod.finishing:
            pod.finishing = True
            self.put(messages.DeletePod(pod.uid))

    def tell(self, pod: Pod, reason: str, message: str, *, warning: bool = False) -> None:
        """Record an event about a pod that is still there."""
        if pod.present:
            self.put(messages.Tell(pod.uid, reason, message, warning))

    def tell_refusal(self, pod: Pod, refusal: Reason, ledger: NodeState) -> None:
        """Say why a pod was refused and, where CPUs are what it lacks, what would let it in."""
        if pod.present:
            refused = (ledger, pod.plan.ask) if refusal.reason == INSUFFICIENT_CPUS else None
            self.put(messages.Tell(pod.uid, refusal.reason, refusal.message, True, refused))

    def tell_once(self, pod: Pod, container: Container, reason: str, message: str) -> None:
        """Warn of trouble with a container's CPUs, once in each of its runs."""
        if not container.drift_told:
            container.drift_told = True
            self.tell(pod, reason, message, warning=True)

    def warn(self, pod: Pod) -> None:
        """Say what the pod will not get; what holds for every pod is said once."""
        for warning in pod.plan.warnings:
            if warning.reason in ONCE:
                if warning.reason in self._warned:
                    continue
                self._warned.add(warning.reason)
            self.tell(pod, warning.reason, warning.message, warning=True)
