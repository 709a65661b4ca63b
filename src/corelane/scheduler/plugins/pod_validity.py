"""PodValidity: pods that cannot be read."""

from corelane.reasons import Code, Reason
from corelane.scheduler.framework.changes import ChangeKind, Hint, always
from corelane.scheduler.framework.plugin import Cycle, Rejection


class PodValidity:
    """Rejects a pod with invalid amounts, labels, annotations, affinity or spread constraints."""

    name = "PodValidity"

    def pre_filter(self, cycle: Cycle) -> Rejection | None:
        if cycle.pod.problem:
            return Rejection.of(self.name, Reason(Code.POD_INVALID, (cycle.pod.problem,)), resolvable=False)
        return None

    def hints(self) -> dict[ChangeKind, Hint]:
        return {ChangeKind.POD_ITSELF: always}
