"""Bindings to a node whose kubelet allocates CPUs: one after another, in the order of the decisions.

Such a kubelet gives CPUs to pods in the order in which it sees them, and the scheduler has replayed that.
Two bindings in flight may be carried out in the other order; then a pod that fitted in the replay may be
rejected.
"""

from collections import deque

from corelane.scheduler.instructions import Bind


class BindingOrder:
    """By node, the bindings that wait for an earlier one."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Bind]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def holds(self, bind: Bind) -> bool:
        """Return whether a binding waits now; another is its node's first until `after` is called for it."""
        if not bind.in_order:
            return False
        if bind.node in self._waiting:
            self._waiting[bind.node].append(bind)
            return True
        self._waiting[bind.node] = deque()
        return False

    def after(self, bind: Bind) -> Bind | None:
        """Return the binding that waited for this one, which was answered or not sent."""
        if not bind.in_order:
            return None
        if waiting := self._waiting[bind.node]:
            return waiting.popleft()
        del self._waiting[bind.node]
        return None
