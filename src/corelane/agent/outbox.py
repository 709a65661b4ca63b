"""What the core orders while it handles one event: instructions, and whose status to look at."""

from collections.abc import Callable

from corelane.agent import messages, status
from corelane.agent.messages import Instruction
from corelane.agent.pods import Pod


class Outbox:
    """Instructions in the order in which they are to be carried out."""

    def __init__(self, place: status.Place) -> None:
        self._place = place
        self._orders: list[Instruction] = []
        self._changed: set[str] = set()

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
