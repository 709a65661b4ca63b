"""The pipeline's entry for this process: nodes, leases, topologies, events and pod statuses of many agents.

What is written is what the same requests to the API would leave, `managedFields` included. A renewal of many
leases, or of many nodes' heartbeats, is one commit and changes times alone: the pipeline takes 2.3 times the
CPU time for it. Outcomes that resemble each other are made once by the pipeline, then from what it made: see
`Templates`. Pods that run, but that the store does not have, are entered again under their UID.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import msgspec

from corelane import names
from corelane.embedded.apiserver import served_kinds
from corelane.embedded.apiserver.api_requests import Target, WriteOptions
from corelane.embedded.apiserver.ownership import field_sets, managed_fields
from corelane.embedded.apiserver.ownership.managed_fields import Resource
from corelane.embedded.apiserver.served_kinds import EVENTS, LEASES, NODES, PODS, ServedKind, by_path
from corelane.embedded.apiserver.status_errors import StatusError
from corelane.embedded.apiserver.store import server_backend
from corelane.embedded.apiserver.store.server_backend import Backend
from corelane.embedded.apiserver.stored_objects import Object, StoreChange, StoredObject
from corelane.embedded.apiserver.write import patching, pipeline, strategy
from corelane.kube.meta import API
from corelane.kube.objects import api_of

_MOST: Final = 500
_MARK: Final = re.compile(rb"\0(\d+)\0")
"""JSON has no NUL."""

_decode = msgspec.json.Decoder().decode
_LEASE_NAMESPACE: Final = "kube-node-lease"
_MANAGER: Final = "corelane"
"""Field manager of corelane's requests that name none."""
_LEASE: Final = Resource(LEASES, LEASES.version)
_NODE_STATUS: Final = Resource(NODES, NODES.version, "status")
_OWN_RENEWALS: Final = managed_fields.manager(_MANAGER, managed_fields.UPDATE, _LEASE.api_version)
_RENEW_TIME: Final = ("f:spec", "f:renewTime")
_TIME: Final = rb'"\d{4}-(?:0[1-9]|1[0-2])-(?:[0-2]\d|3[01])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\dZ"'
_VARIABLE: Final = re.compile(_TIME + rb'|"[a-z]+://[0-9a-f]{32}"')
"""A whole text that is a time, or the id of a container."""
_NO_OWNER: Final = "no UID of an owner"
_Change: TypeAlias = Callable[[Object], None]
_PRIORITY: Final[Mapping[str, type]] = {"priorityClassName": str, "priority": int, "preemptionPolicy": str}


class Templates:
    """Outcomes by request, as JSON; `variables` are the parts of JSON that are marks in both."""

    def __init__(self) -> None:
        self._outcomes: dict[bytes, bytes] = {}
        self.reused = 0
        """Number of outcomes that were made from a template."""

    def filled(self, request: bytes, variables: Sequence[bytes]) -> Any:
        """Return the outcome of a request, None where none of its kind has been kept."""
        outcome = self._outcomes.get(_marked(request, variables))
        if outcome is None:
            return None
        self.reused += 1
        return _decode(_MARK.sub(lambda match: variables[int(match[1])], outcome))

    def keep(self, request: bytes, outcome: bytes, variables: Sequence[bytes]) -> None:
        """Keep what a request led to; the outcome has no other variables than these."""
        if len(self._outcomes) >= _MOST:
            self._outcomes.clear()
        self._outcomes[_marked(request, variables)] = _marked(outcome, variables)


def _marked(text: bytes, variables: Sequence[bytes]) -> bytes:
    for number, variable in enumerate(variables):
        text = text.replace(variable, b"\0%d\0" % number)
    return text


_encode: Final = msgspec.json.Encoder().encode


class NodeObjects:
    """Objects of the nodes whose agents run in this process."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.templates = Templates()

    def get(self, api: API, name: str) -> StoredObject | None:
        """Return an object of a kind without namespaces, None where there is none."""
        return self._backend.store.get(_kind(api).stored, name)

    def ensure(self, body: Mapping[str, Any], manager: str = _MANAGER) -> tuple[StoredObject, bool]:
        """Create an object unless there is one of its name; return it as stored, and whether it is new.

        It is committed with the other writes of the same pass, see `committed`. Raises StatusError.
        """
        kind = _kind(api_of(str(body["apiVersion"]), str(body["kind"])))
        target = _target("create", kind, body["metadata"])
        record = self._backend.store.get(kind.stored, target.key)
        if record is not None:
            return record, False
        return self._create(kind, target, dict(body), manager), True

    def _create(self, kind: ServedKind, target: Target, body: Object, manager: str) -> StoredObject:
        """Create an object as a POST does, or as the one before that differs in name and UIDs alone."""
        request = _encode([kind.stored, body, self._backend.timestamp(), manager])
        owners: list[Object] = body["metadata"].get("ownerReferences") or [{}]
        variables = [_encode(target.name), str(owners[0].get("uid") or _NO_OWNER).encode()]
        usual = not names.dns_subdomain(target.name) and not names.label_value(target.name)
        uid = server_backend.new_uid()
        made = self.templates.filled(request, [*variables, uid.encode()]) if usual else None
        if made is not None:
            return self._backend.store.put(kind.stored, target.key, made)
        created = pipeline.create_body(self._backend, kind, body, WriteOptions(manager=manager))
        made = _without_taint(created) if kind is NODES else created
        if made != created:
            self._backend.store.put(kind.stored, target.key, made)
        meta = {name: value for name, value in made["metadata"].items() if name != "resourceVersion"}
        outcome = _encode({**made, "metadata": meta})
        if usual and outcome.count(variables[0]) == request.count(variables[0]):  # else there by chance
            self.templates.keep(request, outcome, [*variables, meta["uid"].encode()])
        return self._backend.find(target)

    def record_events(self, bodies: Iterable[Object]) -> list[StatusError | None]:
        """Create events in one commit; return for each why it was refused, or None. Raises StoreError."""
        answers: list[StatusError | None] = []
        for body in bodies:
            try:
                pipeline.create_body(self._backend, EVENTS, body, WriteOptions(manager=_MANAGER))
                answers.append(None)
            except StatusError as error:
                answers.append(error)
        self._backend.store.commit()
        return answers

    async def patch_status(self, namespace: str, name: str, uid: str, status: Object) -> None:
        """Patch a pod's status, and wait until it is committed. Raises StatusError, StoreError."""
        self._patch_status({"namespace": namespace, "name": name}, uid, status)
        await self._backend.store.committed()

    def _patch_status(self, place: Mapping[str, Any], uid: str, status: Object) -> None:
        """Patch as the strategic merge patch that has UID and status does, or as an equal one before."""
        target = _target("patch", PODS, place, "status")
        record = self._backend.store.get(PODS.stored, target.key)
        pod = record.object() if record else {}
        meta = pod.get("metadata", {})
        usual = meta.get("uid") == uid and "deletionTimestamp" not in meta and meta.get("managedFields")
        request = _status_request(pod, status, self._backend.timestamp())
        # the times of the request, the earliest first (managed fields are sorted by them), then the ids
        texts = dict.fromkeys(_VARIABLE.findall(request))
        times = sorted(variable for variable in texts if variable[1:2].isdigit())
        variables = times + [variable for variable in texts if not variable[1:2].isdigit()]
        made = self.templates.filled(request, variables) if usual else None
        if made is not None:
            self._put_status(target.key, pod, *made)
            return
        body = _encode({"metadata": {"uid": uid}, "status": status})
        options = WriteOptions(manager=_MANAGER)
        pipeline.patch_object(self._backend, target, patching.STRATEGIC_PATCH, body, options, [])
        outcome = self._backend.find(target).object()
        parts = [outcome["status"], outcome["metadata"].get("managedFields")]
        changed = {
            **meta,
            "managedFields": parts[1],
            "resourceVersion": outcome["metadata"]["resourceVersion"],
        }
        only = outcome == {**pod, "status": parts[0], "metadata": changed}
        text = _encode(parts)
        if usual and only and set(_VARIABLE.findall(text)) <= set(variables):
            self.templates.keep(request, text, variables)

    def _put_status(self, key: str, pod: Object, status: Object, entries: list[Object]) -> None:
        if (pod["status"], pod["metadata"]["managedFields"]) != (status, entries):
            pod["status"], pod["metadata"]["managedFields"] = status, entries
            self._backend.store.put(PODS.stored, key, pod)

    def merge(self, api: API, name: str, patch: Object, manager: str, version: str) -> StoredObject | None:
        """Merge a patch into an object of this `resourceVersion`; None if it has another by now.

        It is committed with the other writes of the same pass, see `committed`. Raises StatusError.
        """
        kind = _kind(api)
        record = self._backend.store.get(kind.stored, name)
        if record is None or str(record.revision) != version:
            return None
        target = _target("patch", kind, {"name": name})
        options = WriteOptions(manager=manager)
        pipeline.patch_object(self._backend, target, patching.MERGE_PATCH, _encode(patch), options, [])
        return self._backend.find(target)

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
            # the managed fields name corelane as the last writer of what changed
            entries = obj["metadata"].pop("managedFields", None)
            managers = managed_fields.stored_managers(entries)
            own = managers.get(_OWN_RENEWALS) if len(managers) == 1 else None
            if own and field_sets.has(own.fields, _RENEW_TIME):
                entries = [{**entries[0], "time": now}]  # as below, in a tenth of the time
            else:
                entries = managed_fields.updated(written, written.view(record.object()), obj, _MANAGER, now)
            if entries:
                obj["metadata"]["managedFields"] = entries
            changes.append(StoreChange(resource, key, obj))
        if changes:
            self._backend.store.write(changes)
            self._backend.store.commit()
        return missing


def _target(verb: str, kind: ServedKind, place: Mapping[str, Any], subresource: str = "") -> Target:
    namespace, name = place.get("namespace", ""), place["name"]
    return Target(
        "", verb, kind.group, kind.version, kind.plural, subresource, namespace, name,
        kind=kind, named=verb == "patch",
    )  # fmt: skip


def _status_request(pod: Object, status: Object, now: str) -> bytes:
    """Return all that the outcome of a status depends on."""
    spec, meta = pod.get("spec", {}), pod.get("metadata", {})
    spec = {**spec, "nodeName": bool(spec.get("nodeName"))}
    parts = (spec, meta.get("generation"), meta.get("managedFields"), pod.get("status"))
    return _encode([*parts, status, now])


def _without_taint(node: Object) -> Object:
    """Return a new Node without the taint of nodes that are not ready, if it is ready.

    The controller would remove it at once, in another write for every node.
    """
    conditions = node["status"].get("conditions") or ()
    if not any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions):
        return node
    taints = [taint for taint in node["spec"].get("taints") or () if not strategy.is_not_ready(taint)]
    spec = {name: value for name, value in node["spec"].items() if name != "taints"}
    return {**node, "spec": {**spec, "taints": taints} if taints else spec}


def _kind(api: API) -> ServedKind:
    kind = by_path(api.group, api.version, api.plural)
    assert kind is not None, api
    return kind


_PODS, _NAMESPACES = served_kinds.PODS, served_kinds.NAMESPACES


def pod_uids(backend: Backend) -> frozenset[str]:
    """Return the UIDs of all pods in the store."""
    return frozenset(record.object()["metadata"]["uid"] for record in backend.store.find(_PODS.stored))


def deleted_pods(backend: Backend) -> frozenset[str]:
    """Return the UIDs of the pods whose deletion is in the history that the store keeps."""
    events = backend.store.recent(_PODS.stored)
    return frozenset(event.record.object()["metadata"]["uid"] for event in events if event.kind == "DELETED")


def restore_pod(backend: Backend, manifest: Mapping[str, Any]) -> str:
    """Write a pod with the UID and creation time of its manifest, running on its node; return its name.

    Its namespace is created where it is missing. Its priority stays, though its priority class may be lost:
    else pods of lower priority could preempt it. Where another pod has the name, the pod gets a name made of
    both name and UID. Raises StatusError for an invalid manifest, StoreError.
    """
    meta: Object = dict(manifest["metadata"])
    namespace = meta["namespace"]
    if backend.store.get(_NAMESPACES.stored, namespace) is None:
        pipeline.create_body(backend, _NAMESPACES, {"metadata": {"name": namespace}}, WriteOptions())
    meta["name"] = _free_name(backend, meta)
    given = manifest["spec"]
    # what admission once computed of the priority; nothing where the number is missing
    priority = {name: given[name] for name, kind in _PRIORITY.items() if type(given.get(name)) is kind}
    spec = {name: value for name, value in given.items() if name not in _PRIORITY}
    tree = {**manifest, "metadata": meta, "spec": spec}
    obj = pipeline.create_body(backend, _PODS, tree, WriteOptions(dry_run=True))
    obj["spec"] |= priority if "priority" in priority else {}
    kept: Collection[str] = ("uid", "creationTimestamp")
    obj["metadata"] |= {name: meta[name] for name in kept if meta.get(name)}
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
    scheduled["lastTransitionTime"] = backend.timestamp()
    obj["status"] |= {"phase": "Running", "conditions": [scheduled]}
    backend.store.put(_PODS.stored, f"{namespace}/{meta['name']}", obj)
    return str(meta["name"])


def enter_deletion(backend: Backend, manifest: Mapping[str, Any]) -> None:
    """Have the history say that this pod was deleted, so that its processes are ended. Raises StoreError."""
    meta: Object = dict(manifest["metadata"])
    meta["name"] = _free_name(backend, meta)
    key = f"{meta['namespace']}/{meta['name']}"
    backend.store.put(_PODS.stored, key, {**manifest, "metadata": meta, "status": {"phase": "Running"}})
    backend.store.delete(_PODS.stored, key)


def _free_name(backend: Backend, meta: Mapping[str, Any]) -> str:
    taken = backend.store.get(_PODS.stored, f"{meta['namespace']}/{meta['name']}") is not None
    return f"{meta['name'][:240]}-{meta['uid'][:8]}" if taken else str(meta["name"])
