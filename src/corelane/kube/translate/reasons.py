"""Why a pod's containers have their CPUs, as an annotation for people and for `corelane status`."""

from collections.abc import Iterable, Mapping

import msgspec

from corelane.kube.keys import PLACEMENT_REASONS
from corelane.kube.pod import Pod
from corelane.placement.reasons import Reason

__all__ = ["annotation", "read"]

_LONGEST = 1024


def annotation(reasons: Iterable[Reason]) -> dict[str, str]:
    """Container to its reasons in one line; nothing if there are none."""
    told: dict[str, list[str]] = {}
    for reason in reasons:
        told.setdefault(reason.container, []).append(reason.text)
    lines = {name: "; ".join(texts)[:_LONGEST] for name, texts in told.items()}
    return {PLACEMENT_REASONS: msgspec.json.encode(lines).decode()} if lines else {}


def read(pod: Pod) -> Mapping[str, str]:
    """What `annotation` wrote; it is only ever shown, so one that is broken counts as absent."""
    try:
        return msgspec.json.decode(pod.metadata.annotations.get(PLACEMENT_REASONS, "{}"), type=dict[str, str])
    except (msgspec.MsgspecError, RecursionError):
        return {}
