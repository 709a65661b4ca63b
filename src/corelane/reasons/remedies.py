"""The sentences about changes of a pod, or of a cluster, by which a pending pod would fit."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from corelane.reasons.codes import Code, Reason


def _tolerate(*taints: str) -> str:
    return f"tolerate {_plural('taint', taints)} {', '.join(taints)}"


def _label(node: str, *labels: str) -> str:
    return f"label node {node} with {', '.join(labels)}"


def _recovers(node: str, *taints: str) -> str:
    return f"wait until node {node} has no {_plural('taint', taints)} {', '.join(taints)}"


def _evict(node: str, *pods: str) -> str:
    return f"move {_plural('pod', pods)} {', '.join(pods)} off node {node}"


def _plural(noun: str, things: Iterable[object]) -> str:
    return noun if len(tuple(things)) == 1 else f"{noun}s"


def _all_of(*reasons: Reason) -> str:
    return ", and ".join(_render(one) for one in reasons)


def _render(reason: Reason) -> str:
    phrase = SENTENCES[reason.code][1]
    return phrase.format(*reason.values) if isinstance(phrase, str) else phrase(*reason.values)


SENTENCES: Final[Mapping[Code, tuple[str, str | Callable[..., str]]]] = {
    Code.TOLERATE_TAINTS: ("tolerate", _tolerate),
    Code.UNCORDON_NODE: ("uncordon", "uncordon node {0}"),
    Code.NODE_RECOVERS: ("recover", _recovers),
    Code.LABEL_NODE: ("label", _label),
    Code.DROP_POD_RULE: ("drop", "drop the pod's {0}"),
    Code.DROP_REQUEST: ("drop", "drop the pod's request for {0}"),
    Code.PREFER_INSTEAD: ("soften", "prefer instead of require: {1} in annotation {0}"),
    Code.REQUEST_LESS: ("fewer", "request {1} {0} instead of {2}"),
    Code.EVICT_PODS: ("release", _evict),
    Code.ALL_OF: ("several", _all_of),
}
