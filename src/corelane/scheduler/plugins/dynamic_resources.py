"""DynamicResources: pods with resource claims stay pending, with a message; nothing is allocated."""

from corelane.reasons import Code, Reason
from corelane.scheduler.cache.pods import PodInfo
from corelane.scheduler.framework.changes import ChangeKind, Hint, always
from corelane.scheduler.framework.plugin import Cycle, Rejection, Skip


class DynamicResources:
    """Rejects pods with `spec.resourceClaims`."""

    name = "DynamicResources"

    def pre_filter(self, cycle: Cycle) -> Rejection | Skip | None:
        claims = cycle.pod.pod.spec.resource_claims
        if not claims:
            return Skip()
        names = ", ".join(claim.name for claim in claims)
        return Rejection.of(self.name, Reason(Code.RESOURCE_CLAIMS_UNSUPPORTED, (names,)), resolvable=False)

    def idle(self, _pod: PodInfo) -> bool:
        return True

    def hints(self) -> dict[ChangeKind, Hint]:
        return {ChangeKind.POD_ITSELF: always}
