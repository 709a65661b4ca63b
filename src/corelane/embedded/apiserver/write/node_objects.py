"""Nodes, leases, topologies and events of many agents in the server's process: created, read, changed.

What is written is what the same requests to the API would leave, `managedFields` included. A renewal of many
leases, or of many nodes' heartbeats, is one commit.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import msgspec

from corelane.embedded.apiserver.api_requests import Target, WriteOptions
from corelane.embedded.apiserver.ownership import field_sets, managers, updating
from corelane.embedded.apiserver.ownership.field_sets import FieldSet
from corelane.embedded.apiserver.ownership.kinds import Resource
from corelane.embedded.apiserver.served_kinds import LEASES, NODES, ServedKind, by_path
from corelane.embedded.apiserver.status_errors import StatusError
from corelane.embedded.apiserver.store import server_backend
from corelane.embedded.apiserver.store.server_backend import Backend
from corelane.embedded.apiserver.stored_objects import Object, StoreChange, StoredObject
from corelane.embedded.apiserver.write import strategy
from corelane.embedded.apiserver.write.event_objects import EventObjects
from corelane.embedded.apiserver.write.pod_statuses import PodStatuses
from corelane.embedded.apiserver.write.similar_objects import SimilarObjects
from corelane.kube.meta import API
from corelane.kube.objects import api_of

_LEASE_NAMESPACE: Final = "kube-node-lease"
_MANAGER: Final = "corelane"
"""Field manager of corelane's requests that name none."""
_LEASE: Final = Resource(LEASES, LEASES.version)
_NODE_STATUS: Final = Resource(NODES, NODES.version, "status")
_OWN_RENEWALS: Final = [managers.manager(_MANAGER, managers.UPDATE, _LEASE.api_version)]
_LARGE: Final = 128 << 10
"""Bytes of an object and its patch together, below which no limit of annotations can be exceeded."""
_ANNOTATIONS: Final = ("f:metadata", "f:annotations")
_RENEW_TIME: Final = ("f:spec", "f:renewTime")

_encode: Final = msgspec.json.Encoder().encode
_Change: TypeAlias = Callable[[Object], None]


class NodeObjects:
    """Objects of the nodes whose agents run in this process."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._creations = SimilarObjects(backend)
        self._events = EventObjects(backend)
        self._statuses = PodStatuses(backend)

    def get(self, api: API, name: str) -> StoredObject | None:
        """Return an object of a kind without namespaces, None where there is none."""
        return self._backend.store.get(_kind(api).stored, name)

    def ensure(self, body: Mapping[str, Any], manager: str = _MANAGER) -> tuple[StoredObject, bool]:
        """Create an object unless there is one of its name; return it as stored, and whether it is new.

        It is committed with the other writes of the same pass, see `committed`. Raises StatusError.
        """
        api, metadata = api_of(str(body["apiVersion"]), str(body["kind"])), body["metadata"]
        kind, namespace = _kind(api), metadata.get("namespace", "")
        target = Target(
            api.path(namespace), "create", api.group, api.version, api.plural, "", namespace,
            metadata["name"], kind=kind,
        )  # fmt: skip
        record = self._backend.store.get(kind.stored, target.key)
        if record is not None:
            return record, False
        options = WriteOptions(manager=manager)
        complete = _without_taint if kind is NODES else _unchanged
        return self._creations.create(target, dict(body), options, complete), True

    def record_events(self, bodies: Iterable[Object]) -> list[StatusError | None]:
        """Create events in one commit; return for each why it was refused, or None. Raises StoreError."""
        answers = self._events.create(bodies, _MANAGER)
        self._backend.store.commit()
        return answers

    async def patch_status(self, namespace: str, name: str, uid: str, status: Object) -> None:
        """Patch a pod's status, and wait until it is committed. Raises StatusError, StoreError."""
        self._statuses.patch(namespace, name, uid, status, _MANAGER)
        await self._backend.store.committed()

    def merge(self, api: API, name: str, patch: Object, manager: str, version: str) -> StoredObject | None:
        """Merge into an object of a custom resource values of fields that `manager` alone owns.

        Return the object as stored; None where a request has to do it, which checks everything: the object is
        not of this `resourceVersion` any more, other managers wrote to it, fields come or go, or it is so
        large that a limit may be exceeded. It is committed with the other writes of the same pass, see
        `committed`.
        """
        kind = _kind(api)
        record = self._backend.store.get(kind.stored, name)
        if record is None or str(record.revision) != version or _is_large(record, patch):
            return None
        obj = record.object()
        entry = _only_entry(obj, manager, api.api_version)
        if entry is None or not _changes_values(obj, patch, entry["fieldsV1"]):
            return None
        meta = obj["metadata"]
        annotations = patch.get("metadata", {}).get("annotations", {})
        content = {name: part for name, part in patch.items() if name != "metadata" and obj[name] != part}
        if not content and meta["annotations"].items() >= annotations.items():
            return record
        meta["annotations"] |= annotations
        meta["managedFields"] = [{**entry, "time": self._backend.timestamp()}]
        if content:
            meta["generation"] = meta.get("generation", 0) + 1
        return self._backend.store.put(kind.stored, name, obj | content)

    async def committed(self) -> None:
        """Wait until what was created and merged so far is committed.

        Raises StoreError; nothing since the last commit is done then.
        """
        await self._backend.store.committed()

    def renew_leases(self, names: Iterable[str], at: float) -> list[str]:
        """Set `renewTime` of the nodes' leases to Unix seconds; return the nodes without a lease.

        Raises StoreError.
        """
        text = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

        def renew(lease: Object) -> None:
            lease["spec"]["renewTime"] = text

        return self._change(_LEASE, [f"{_LEASE_NAMESPACE}/{name}" for name in names], renew)

    def refresh_heartbeats(self, names: Iterable[str], conditions: Collection[str], at: float) -> list[str]:
        """Set `lastHeartbeatTime` of these conditions of the nodes to Unix seconds; return missing nodes.

        Raises StoreError.
        """
        text = server_backend.rfc3339(datetime.fromtimestamp(at, UTC))

        def refresh(node: Object) -> None:
            for condition in node["status"].get("conditions") or ():
                if condition["type"] in conditions:
                    condition["lastHeartbeatTime"] = text

        return self._change(_NODE_STATUS, names, refresh)

    def _change(self, written: Resource, keys: Iterable[str], change: _Change) -> list[str]:
        """Change times of the objects of these keys, in one commit; return the names that are missing."""
        resource, now = written.kind.stored, self._backend.timestamp()
        changes: list[StoreChange] = []
        missing: list[str] = []
        for key in keys:
            record = self._backend.store.get(resource, key)
            if record is None:
                missing.append(key.rpartition("/")[2])
                continue
            obj = record.object()
            change(obj)
            _note_writer(written, record, obj, now)
            changes.append(StoreChange(resource, key, obj))
        if changes:
            self._backend.store.write(changes)
            self._backend.store.commit()
        return missing


def _unchanged(obj: Object) -> Object:
    return obj


def _without_taint(node: Object) -> Object:
    """Return a new Node without the taint of nodes that are not ready, if it is ready.

    The controller would remove it at once, in another write for every node.
    """
    conditions = node["status"].get("conditions") or ()
    if not any(one["type"] == "Ready" and one["status"] == "True" for one in conditions):
        return node
    taints = [taint for taint in node["spec"].get("taints") or () if not strategy.is_not_ready(taint)]
    spec = {name: value for name, value in node["spec"].items() if name != "taints"}
    return {**node, "spec": {**spec, "taints": taints} if taints else spec}


def _note_writer(written: Resource, record: StoredObject, obj: Object, now: str) -> None:
    """Have the managed fields name corelane as the last writer of what changed."""
    entries = obj["metadata"].pop("managedFields", None)
    known = managers.stored(entries)
    if list(known) == _OWN_RENEWALS and field_sets.has(next(iter(known.values())).fields, _RENEW_TIME):
        entries = [{**entries[0], "time": now}]  # as below, in a tenth of the time
    else:
        entries = updating.updated(written, written.view(record.object()), obj, _MANAGER, now)
    if entries:
        obj["metadata"]["managedFields"] = entries


def _is_large(record: StoredObject, patch: Object) -> bool:
    return len(record.value) + len(_encode(patch)) > _LARGE


def _only_entry(obj: Object, manager: str, version: str) -> Object | None:
    """Return the one entry of the managed fields if it is that of this manager's updates, else None."""
    entries = obj["metadata"].get("managedFields")
    if list(managers.stored(entries)) != [managers.manager(manager, managers.UPDATE, version)]:
        return None
    entry: Object = entries[0]
    return entry


def _changes_values(obj: Object, patch: Object, owned: FieldSet) -> bool:
    """Whether a patch has only whole lists and annotations that the object has, and that are owned."""
    annotations = patch.get("metadata", {}).get("annotations", {})
    content = {name: part for name, part in patch.items() if name != "metadata"}
    present: Object = obj["metadata"].get("annotations") or {}
    return (
        patch.get("metadata", {}).keys() <= {"annotations"}
        and all(
            isinstance(text, str) and isinstance(present.get(key), str) for key, text in annotations.items()
        )
        and all(field_sets.has(owned, (*_ANNOTATIONS, f"f:{key}")) for key in annotations)
        and all(
            part and isinstance(part, list) and isinstance(obj.get(key), list)
            for key, part in content.items()
        )
        and all(field_sets.has(owned, (f"f:{key}",)) for key in content)
    )


def _kind(api: API) -> ServedKind:
    kind = by_path(api.group, api.version, api.plural)
    assert kind is not None, api
    return kind
