"""Koordinator's `resource-spec`: what a pod asks for, and, as upstream writes it back, what came of it.

What a scheduler filled in is no wish of the pod's: under another label of the Node it would be a conflict
that nobody asked for. So a member of our own, which others pass over, keeps what the pod itself had said.
"""

from collections.abc import Mapping
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
_OWN: Final = "corelane.io/resolved"
"""Member to what the pod had said there, "" for nothing."""


def read(field: str, text: str) -> Mapping[str, Any]:
    """The members as the pod's owner said them, texts without blanks. Raises TranslationError."""
    spec = tree(field, text, _NAMES)
    own = member(f"{field}.{_OWN}", spec.get(_OWN), _NAMES)
    return {name: _stripped({**spec, **own}.get(name)) for name in _NAMES}


def _stripped(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value


def resolved(pod: Pod, bind: BindPolicy | None, *, required: bool) -> dict[str, str]:
    """The annotation with the policy that a pod was bound by; nothing where the pod names it, or none holds.

    As upstream's `appendResourceSpecIfMissed`: a policy that the node requires, one that the pod left to the
    scheduler (`Default`), or a preferred one where the pod names none.
    """
    where, text = annotation(RESOURCE_SPEC), pod.metadata.annotations.get(RESOURCE_SPEC, "")
    try:
        said = read(where, text)
    except TranslationError:
        return {}
    filled = dict.fromkeys(_to_fill(said, required=required), str(bind)) if bind else {}
    if not filled:
        return {}
    spec = {**tree(where, text, _NAMES), **filled, _OWN: {name: said[name] or "" for name in filled}}
    return {RESOURCE_SPEC: msgspec.json.encode(spec).decode()}


def _to_fill(said: Mapping[str, Any], *, required: bool) -> list[str]:
    if required and said[REQUIRED] in (None, "", "Default"):
        return [REQUIRED, PREFERRED] if said[PREFERRED] == "Default" else [REQUIRED]
    if said[PREFERRED] == "Default" or not (said[REQUIRED] or said[PREFERRED]):
        return [PREFERRED]
    return []
