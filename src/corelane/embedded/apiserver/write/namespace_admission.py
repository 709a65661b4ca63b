"""Admission of namespaces: the labels that give their levels of Pod Security (KEP 2579).

The levels are not enforced here, but a label that upstream would refuse is refused.
"""

import re
from typing import Final

from corelane.embedded.apiserver import status_errors
from corelane.embedded.apiserver.api_requests import Target
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.stored_objects import Object
from corelane.embedded.apiserver.validation import causes

_PREFIX: Final = "pod-security.kubernetes.io/"
_LEVELS: Final = ("privileged", "baseline", "restricted")
_VERSION: Final = re.compile(r"v1\.(0|[1-9][0-9]*)")
_LARGEST: Final = 2**63 - 1  # upstream reads the minor version as Go's int


def check_labels(target: Target, obj: Object, old: Object | None = None) -> None:
    """Check the labels of Pod Security; an update may leave wrong ones as they are. Raises StatusError."""
    found = _faults(obj)
    if found and (old is None or found != _faults(old)):
        raise status_errors.invalid("Namespace", "", target.name, found)


def _faults(namespace: Object) -> list[StatusCause]:
    """The faults in upstream's order: of each mode its level, then its version."""
    labels = namespace["metadata"].get("labels") or {}
    found = []
    for mode in ("enforce", "audit", "warn"):
        for name, sound, why in (
            (mode, _is_level, f"must be one of {', '.join(_LEVELS)}"),
            (f"{mode}-version", _is_version, 'must be "latest" or "v1.x"'),
        ):
            label = _PREFIX + name
            if label in labels and not sound(labels[label]):
                found.append(causes.invalid(causes.key("metadata.labels", label), labels[label], why))
    return found


def _is_level(value: str) -> bool:
    return value in _LEVELS


def _is_version(value: str) -> bool:
    match = _VERSION.fullmatch(value)
    return value == "latest" or (match is not None and int(match[1]) <= _LARGEST)
