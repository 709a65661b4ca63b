"""SchedulingGates: a pod with gates is not tried before the last one is removed (KEP-3521)."""

from corelane.reasons import Code, Reason
from corelane.scheduler.cache.pods import PodInfo
from corelane.scheduler.framework.changes import ChangeKind, Hint, always
from corelane.scheduler.framework.plugin import Rejection


class SchedulingGates:
    """Keeps gated pods out of the queue."""

    name = "SchedulingGates"

    def pre_enqueue(self, pod: PodInfo) -> Rejection | None:
        gates = pod.pod.spec.scheduling_gates
        if not gates:
            return None
        names = tuple(gate.name for gate in gates)
        return Rejection.of(self.name, Reason(Code.SCHEDULING_GATES, names), resolvable=False)

    def hints(self) -> dict[ChangeKind, Hint]:
        return {ChangeKind.POD_ITSELF: always}
