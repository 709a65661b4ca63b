"""Conflicts of an apply: which managers own the fields that it would change.

Upstream: apimachinery `pkg/util/managedfields` (conflict).
"""

from collections.abc import Mapping

from corelane.embedded.apiserver.ownership import field_sets
from corelane.embedded.apiserver.ownership.field_sets import FieldSet, Path
from corelane.embedded.apiserver.ownership.managers import Manager
from corelane.embedded.apiserver.status_errors import StatusCause, StatusError, details


class ApplyConflictError(Exception):
    """Other managers own fields that an apply would change."""

    def __init__(self, clashes: Mapping[Manager, FieldSet]) -> None:
        super().__init__("apply conflict")
        self.clashes = clashes

    def paths(self) -> list[tuple[Manager, Path]]:
        """Return the fields in conflict, by manager."""
        ordered = sorted(self.clashes, key=lambda who: who.order)
        return [(who, path) for who in ordered for path in field_sets.paths(self.clashes[who])]

    def status(self) -> StatusError:
        """Return the answer 409, which names each manager and field."""
        found = [(who, field_sets.shown(path)) for who, path in self.paths()]
        causes = [StatusCause("FieldManagerConflict", f"conflict with {who}", path) for who, path in found]
        return StatusError(409, "Conflict", _message(found), details(causes=causes))


def _message(found: list[tuple[Manager, str]]) -> str:
    if len(found) == 1:
        who, path = found[0]
        return f"Apply failed with 1 conflict: conflict with {who}: {path}"
    lines: list[str] = []
    for who in dict.fromkeys(who for who, _ in found):
        lines.append(f"conflicts with {who}:")
        lines += [f"- {path}" for other, path in found if other == who]
    return f"Apply failed with {len(found)} conflicts: " + "\n".join(lines)
