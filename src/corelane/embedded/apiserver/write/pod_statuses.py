"""Statuses of pods that agents in the server's process write, each as a PATCH of `status` would leave it.

Many pods resemble each other: of equal specs they go from equal statuses to equal ones, but for times and
ids of containers. What the pipeline made of the first is kept as text in which these are marks, and a later
status with the same text is made from it. Marks of times are numbered in the order of the times, because
managed fields are sorted by them.
"""

import re
from typing import Any, Final

import msgspec

from corelane.embedded.apiserver.api_requests import Target, WriteOptions
from corelane.embedded.apiserver.served_kinds import PODS
from corelane.embedded.apiserver.store.server_backend import Backend
from corelane.embedded.apiserver.stored_objects import Object, StoredObject
from corelane.embedded.apiserver.write import patching, pipeline

_MOST_TEMPLATES: Final = 500
_TIME: Final = rb'"\d{4}-(?:0[1-9]|1[0-2])-(?:[0-2]\d|3[01])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\dZ"'
_VARIABLE: Final = re.compile(_TIME + rb'|"[a-z]+://[0-9a-f]{32}"')
"""A whole text that is a time, or the id of a container."""
_NUL: Final = b'"\\u0000'
_MARK: Final = re.compile(rb'"\\u0000(\d+)"')

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Any]).decode


class PodStatuses:
    """Patches statuses in `backend`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._templates: dict[bytes, bytes] = {}
        self.reused = 0
        """Number of statuses that were made from a template."""

    def patch(self, namespace: str, name: str, uid: str, status: Object, manager: str) -> None:
        """Patch the status of the pod of that UID, as the strategic merge patch that has both does.

        Raises StatusError, StoreError.
        """
        target = Target(
            "", "patch", PODS.group, PODS.version, PODS.plural, "status", namespace, name,
            kind=PODS, named=True,
        )  # fmt: skip
        record = self._backend.store.get(PODS.stored, target.key)
        pod = record.object() if record else {}
        text = _request(pod, status, self._backend.timestamp(), manager)
        usual = _is_usual(pod, uid) and _NUL not in text
        variables = _variables(text)
        key = _with_marks(text, variables)
        template = self._templates.get(key) if usual else None
        if template is not None:
            self.reused += 1
            self._put(target.key, pod, _filled(template, variables))
            return
        body = _encode({"metadata": {"uid": uid}, "status": status})
        options = WriteOptions(manager=manager)
        pipeline.patch_object(self._backend, target, patching.STRATEGIC_PATCH, body, options, [])
        made = self._backend.store.get(PODS.stored, target.key)
        if made is not None and usual:
            self._learn(key, pod, made, variables)

    def _put(self, key: str, pod: Object, parts: list[Any]) -> None:
        status, entries = parts
        if (pod["status"], pod["metadata"]["managedFields"]) == (status, entries):
            return
        pod["status"], pod["metadata"]["managedFields"] = status, entries
        self._backend.store.put(PODS.stored, key, pod)

    def _learn(self, key: bytes, pod: Object, made: StoredObject, variables: list[bytes]) -> None:
        """Keep what a status became, if nothing else of the pod changed."""
        new = made.object()
        parts = [new["status"], new["metadata"].get("managedFields")]
        pod["status"], pod["metadata"]["managedFields"] = parts
        pod["metadata"]["resourceVersion"] = new["metadata"]["resourceVersion"]
        text = _encode(parts)
        if new != pod or _NUL in text or not set(_VARIABLE.findall(text)) <= set(variables):
            return
        if len(self._templates) >= _MOST_TEMPLATES:
            self._templates.clear()
        self._templates[key] = _with_marks(text, variables)


def _is_usual(pod: Object, uid: str) -> bool:
    """Whether the pod is there, is not being deleted, and its fields have managers."""
    meta = pod.get("metadata", {})
    return meta.get("uid") == uid and "deletionTimestamp" not in meta and bool(meta.get("managedFields"))


def _request(pod: Object, status: Object, now: str, manager: str) -> bytes:
    """Return all that the outcome depends on."""
    spec, meta = pod.get("spec", {}), pod.get("metadata", {})
    spec = {**spec, "nodeName": bool(spec.get("nodeName"))}
    parts = (spec, meta.get("generation"), meta.get("managedFields"), pod.get("status"))
    return _encode([*parts, status, now, manager])


def _variables(text: bytes) -> list[bytes]:
    """Return the times of a request, the earliest first, and the ids in their order."""
    found = dict.fromkeys(_VARIABLE.findall(text))
    times = sorted(one for one in found if one[1:2].isdigit())
    return times + [one for one in found if not one[1:2].isdigit()]


def _with_marks(text: bytes, variables: list[bytes]) -> bytes:
    marks = {one: b'"\\u0000%d"' % number for number, one in enumerate(variables)}
    return _VARIABLE.sub(lambda found: marks[found[0]], text)


def _filled(template: bytes, variables: list[bytes]) -> list[Any]:
    return _decode(_MARK.sub(lambda found: variables[int(found[1])], template))
