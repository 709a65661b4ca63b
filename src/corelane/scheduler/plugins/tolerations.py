"""Whether tolerations match taints, as upstream's `ToleratesTaint`."""

from collections.abc import Iterable
from typing import Final

from corelane.kube.objects import Taint
from corelane.kube.pod import Pod, Toleration

_REPELLING: Final = frozenset({"NoSchedule", "NoExecute"})


def untolerated(pod: Pod, taints: Iterable[Taint]) -> Taint | None:
    """Return the first taint that keeps the pod off the node."""
    tolerations = pod.spec.tolerations
    repelling = (taint for taint in taints if taint.effect in _REPELLING)
    return next((taint for taint in repelling if not tolerated(taint, tolerations)), None)


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Return whether a toleration matches the taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Upstream's `ToleratesTaint`: an empty effect or key (with Exists) matches all."""
    if toleration.effect not in {"", taint.effect} or toleration.key not in {"", taint.key}:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in {"", "Equal"} and toleration.value == taint.value
