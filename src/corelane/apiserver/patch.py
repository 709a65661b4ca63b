"""Patches: JSON Patch (RFC 6902), JSON merge patch (RFC 7386) and Kubernetes' strategic merge patch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corelane.apiserver.kinds import Kind


def apply(
    kind: Kind,
    content_type: str,
    current: dict[str, Any],
    body: bytes,
    *,
    field_validation: str = "Warn",
    subresource: str = "",
) -> tuple[dict[str, Any], list[str]]:
    """The object after a patch, and the warnings to answer with. `current` says its own group and version."""
    raise NotImplementedError
