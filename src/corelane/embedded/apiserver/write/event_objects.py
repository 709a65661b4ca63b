"""Events of programs in the server's process: many in one commit, each as a POST would leave it.

The first event with certain members goes through the pipeline. What it became is kept, and the next ones with
the same members are made from it; whatever is unusual goes through the pipeline, too.
"""

import re
from collections.abc import Hashable, Iterable
from typing import Any, Final

from corelane.embedded.apiserver.api_requests import Target, WriteOptions
from corelane.embedded.apiserver.codec import envelope
from corelane.embedded.apiserver.served_kinds import EVENTS
from corelane.embedded.apiserver.status_errors import StatusError
from corelane.embedded.apiserver.store import server_backend
from corelane.embedded.apiserver.store.server_backend import Backend
from corelane.embedded.apiserver.stored_objects import Object, StoreChange
from corelane.embedded.apiserver.validation import create as faults_of
from corelane.embedded.apiserver.write import admission_plugins, pipeline

_MOST_TEMPLATES: Final = 100
_TIME: Final = re.compile(r"\d{4}-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-5]\dZ").fullmatch
_METADATA: Final = ["name", "namespace"]


class EventObjects:
    """Creates events of API version v1 in `backend`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._templates: dict[Hashable, Object] = {}
        self.reused = 0
        """Number of events that were made from a template."""

    def create(self, bodies: Iterable[Object], manager: str) -> list[StatusError | None]:
        """Create events, as many as possible in one commit; return for each why it was refused, or None.

        Raises StoreError: then some may have been created.
        """
        answers: list[StatusError | None] = []
        changes: dict[str, Object] = {}
        for body in bodies:
            target = _target(body)
            made = None if target.key in changes else self._made(target, body)
            if made is not None:
                changes[target.key] = made
                answers.append(None)
                continue
            self._write(changes)
            changes = {}
            answers.append(self._created(target, body, WriteOptions(manager=manager)))
        self._write(changes)
        return answers

    def _write(self, changes: dict[str, Object]) -> None:
        if changes:
            self.reused += len(changes)
            self._backend.store.write(
                [StoreChange(EVENTS.stored, key, made) for key, made in changes.items()]
            )

    def _made(self, target: Target, body: Object) -> Object | None:
        """Return an event as stored; None where the pipeline has to make or refuse it."""
        template = self._templates.get(_members(body))
        if template is None or self._backend.store.get(EVENTS.stored, target.key) is not None:
            return None
        made, now = _filled(template, body), self._backend.timestamp()
        entries = [{**entry, "time": now} for entry in template["metadata"].get("managedFields", ())]
        made["metadata"] |= {"uid": server_backend.new_uid(), "creationTimestamp": now}
        made["metadata"] |= {"managedFields": entries} if entries else {}
        try:
            admission_plugins.admit_create(self._backend, target, made)
        except StatusError:
            return None
        return None if faults_of(EVENTS, made, version=EVENTS.version) else made

    def _created(self, target: Target, body: Object, options: WriteOptions) -> StatusError | None:
        try:
            shaped, _ = envelope.shaped(EVENTS, EVENTS.version, body)
            made = pipeline.create(self._backend, target, shaped, options).obj
        except StatusError as error:
            return error
        members = _members(body)
        if members is not None and _filled(made, body) == made:
            if len(self._templates) >= _MOST_TEMPLATES:
                self._templates.clear()
            self._templates[members] = made
        return None


def _target(body: Object) -> Target:
    meta = body["metadata"]
    return Target(
        "", "create", EVENTS.group, EVENTS.version, EVENTS.plural, "", meta["namespace"], meta["name"],
        kind=EVENTS,
    )  # fmt: skip


def _members(body: Object) -> Hashable:
    """Return what two events have in common that one can be made from the other; None for unusual ones."""
    if [*body["metadata"]] != _METADATA:
        return None
    return tuple((name, _member(part)) for name, part in body.items())


def _member(value: Any) -> Hashable:
    """Return the members of an object, of a text whether it is empty or a time, and any other value."""
    if isinstance(value, dict):
        return tuple((name, _member(part)) for name, part in value.items())
    if isinstance(value, str):
        return "time" if _TIME(value) else bool(value)
    return type(value), repr(value)


def _filled(template: Object, body: Object) -> Object:
    """Return the template with the values of `body`."""
    return {
        name: _filled(part, body[name]) if isinstance(part, dict) and name in body else body.get(name, part)
        for name, part in template.items()
    }
