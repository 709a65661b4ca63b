"""Warnings about what is allowed but hardly meant (upstream: `pkg/api/pod/warnings.go`, `pkg/api/node`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corelane.apiserver.kinds import Kind


def on_create(kind: Kind, obj: dict[str, Any]) -> list[str]:
    return []


def on_update(kind: Kind, obj: dict[str, Any], old: dict[str, Any], subresource: str) -> list[str]:
    return []
