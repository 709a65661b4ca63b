"""PodValidity: pods that cannot be read."""

from corelane.reasons import Code, Reason
from corelane.scheduler.cache.pods import PodInfo
from corelane.scheduler.framework.changes import ChangeKind, Hint, always
from corelane.scheduler.framework.plugin import SKIP, Cycle, Rejection, Skip


class PodValidity:
    """Rejects a pod with invalid amounts, labels, annotations, affinity or spread constraints."""

    name = "PodValidity"

    def pre_filter(self, cycle: Cycle) -> Rejection | Skip:
        if cycle.pod.problem:
            return Rejection.of(self.name, Reason(Code.POD_INVALID, (cycle.pod.problem,)), resolvable=False)
        return SKIP

    def idle(self, pod: PodInfo) -> bool:
        return not pod.problem

    def hints(self) -> dict[ChangeKind, Hint]:
        return {ChangeKind.POD_ITSELF: always}
