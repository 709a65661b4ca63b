"""Koordinator's `resource-spec`: what a pod asks for, and, as upstream writes it back, what came of it.

What a scheduler filled in is no wish of the pod's: under another label of the Node it would be a conflict
that nobody asked for. So a member of our own, which others pass over, keeps what the pod itself had said. It
counts only as long as what was filled in still stands there: who changes that has a wish.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from corelane.kube.keys import RESOURCE_SPEC
from corelane.kube.pod import Pod
from corelane.kube.translate.annotations import annotation, member, tree
from corelane.kube.translate.errors import TranslationError
from corelane.workload import BindPolicy

__all__ = ["EXCLUSIVE", "PREFERRED", "REQUIRED", "read", "resolved"]

REQUIRED: Final = "requiredCPUBindPolicy"
PREFERRED: Final = "preferredCPUBindPolicy"
EXCLUSIVE: Final = "preferredCPUExclusivePolicy"
_NAMES: Final = (REQUIRED, PREFERRED, EXCLUSIVE)
_OPEN: Final = (None, "", "Default")
"""What leaves a bind policy to the scheduler."""
_OWN: Final = "corelane.io/resolved"
"""Member to what the pod had said there, "" for nothing; under `to` the policy that stands there instead."""


def read(field: str, text: str) -> Mapping[str, Any]:
    """The members as the pod's owner said them, texts without blanks. Raises TranslationError."""
    said = _said(field, text)
    return {name: _stripped(said.get(name)) for name in _NAMES}


def _said(field: str, text: str) -> dict[str, Any]:
    """All members but ours, with what was filled in taken out again."""
    spec = dict(tree(field, text, _NAMES))
    own = member(f"{field}.{_OWN}", spec.pop(_OWN, None), _NAMES)
    for name in own.keys() & spec.keys() & {REQUIRED, PREFERRED}:
        if spec[name] == own.get("to") and own[name] in _OPEN:
            del spec[name]
            spec |= {name: own[name]} if own[name] else {}
    return spec


def _stripped(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value


def resolved(pod: Pod, bind: BindPolicy | None, *, required: bool) -> dict[str, str]:
    """The annotation with the policy that a pod was bound by; nothing where it stays as it is.

    As upstream's `appendResourceSpecIfMissed`: a policy that the node requires, one that the pod left to the
    scheduler (`Default`), or a preferred one where the pod names none. What an earlier binding filled in, of
    a pod that this one is a copy of, is replaced.
    """
    where, text = annotation(RESOURCE_SPEC), pod.metadata.annotations.get(RESOURCE_SPEC, "")
    try:
        said, filled = _said(where, text), _to_fill(read(where, text), required=required) if bind else ()
    except TranslationError:
        return {}
    spec = _filled(said, filled, str(bind))
    return {RESOURCE_SPEC: msgspec.json.encode(spec).decode()} if spec != tree(where, text, _NAMES) else {}


def _to_fill(said: Mapping[str, Any], *, required: bool) -> list[str]:
    if required and said[REQUIRED] in _OPEN:
        return [REQUIRED, PREFERRED] if said[PREFERRED] == "Default" else [REQUIRED]
    if said[PREFERRED] == "Default" or not (said[REQUIRED] or said[PREFERRED]):
        return [PREFERRED]
    return []


def _filled(said: Mapping[str, Any], names: Iterable[str], bind: str) -> dict[str, Any]:
    own = {name: _stripped(said.get(name)) or "" for name in names}
    return {**said, **dict.fromkeys(own, bind), _OWN: own | {"to": bind}} if own else dict(said)
