"""Pods that run on this machine although the API server does not have them: recreated, not ended.

An API server whose data is missing, empty or older than the pods has no objects of them. That is not a reason
to end a process: a pod is gone only where the server's history has its deletion, or where the operator says
so (`--forget-pods`); until then it is entered again from the records of its containers.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from corelane import structured_log
from corelane.agent.allocation.instructions import PublishEvent
from corelane.agent.saved_state import LEDGER_FILE
from corelane.embedded.apiserver.status_errors import StatusError
from corelane.embedded.apiserver.store.server_backend import Backend
from corelane.embedded.apiserver.write import node_objects
from corelane.embedded.pods import pod_manifest
from corelane.embedded.pods.pod_manifest import Manifest
from corelane.machine import Machine
from corelane.node import NodeConfigError, codec
from corelane.node.config import NodeConfig
from corelane.node.entries import Entry
from corelane.node.ledger import LedgerError
from corelane.runtime.base import ContainerSpec

_log = structured_log.get_logger("corelane.up")


@dataclass(slots=True)
class Recovery:
    """What became of the pods that the API server lacked: `namespace/name` of those recreated.

    `partly` were recreated without all that their manifests had; `unlisted` are UIDs of running pods that
    could not be recreated: their containers are left as they are. `forgotten` pods are ended.
    """

    recreated: list[str] = field(default_factory=list)
    partly: list[str] = field(default_factory=list)
    unlisted: set[str] = field(default_factory=set)
    forgotten: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return one sentence for each outcome."""
        lines = []
        if self.recreated:
            lines.append(
                f"{_pods(self.recreated)} that the API server's data lacked, recreated from the records of "
                "their containers; to end them, delete them, or use `corelane up --forget-pods`"
            )
        if self.partly:
            lines.append(
                f"{_pods(self.partly)} recreated in part: the records have no whole manifest (labels, "
                "annotations and memory requests may be missing)"
            )
        if self.unlisted:
            lines.append(
                f"{len(self.unlisted)} running pods without a pod object left as they are: UIDs "
                f"{', '.join(sorted(self.unlisted))}; `corelane down` ends them"
            )
        if self.forgotten:
            lines.append(f"{_pods(self.forgotten)} that the API server's data lacked, ended (--forget-pods)")
        return lines

    def events(self) -> list[PublishEvent]:
        """Return the Node's events about the outcomes."""
        return [PublishEvent("", "PodsRecreated", line, True) for line in self.lines()]


def _pods(titles: Sequence[str]) -> str:
    return f"{len(titles)} pod{'s' * (len(titles) > 1)} ({', '.join(titles)})"


@dataclass(frozen=True, slots=True)
class NodeRecords:
    """What a node's directory has about its pods: container records, and entries of the ledger by UID."""

    node: str
    containers: Sequence[tuple[ContainerSpec, bool]]
    """With whether a process may run."""
    ledger: Mapping[str, tuple[Entry, ...]]

    def pods(self) -> dict[str, list[ContainerSpec]]:
        """Return the records of every pod that runs or that the ledger has, by UID."""
        by_uid: dict[str, list[ContainerSpec]] = defaultdict(list)
        for spec, _ in self.containers:
            by_uid[spec.pod_uid].append(spec)
        live = {spec.pod_uid for spec, runs in self.containers if runs}
        return {uid: specs for uid, specs in by_uid.items() if uid in live or uid in self.ledger}


def ledger_entries(directory: Path, machine: Machine, config: NodeConfig) -> dict[str, tuple[Entry, ...]]:
    """Return the entries of a node's saved ledger by pod UID; none where it cannot be read."""
    try:
        state = codec.decode((directory / LEDGER_FILE).read_bytes(), machine, config)
    except (OSError, LedgerError, NodeConfigError):
        return {}
    return {uid: state.of_pod(uid) for uid in state.pods}


def recover(recovery: Recovery, records: NodeRecords, *, forget: bool) -> Callable[[Backend], None]:
    """Return what enters lost pods into the API server before its first request, and fills `recovery`."""

    def enter(backend: Backend) -> None:
        present = node_objects.pod_uids(backend) | node_objects.deleted_pods(backend)
        for uid, specs in records.pods().items():
            if uid in present:
                continue
            manifest, whole = pod_manifest.recreated_manifest(
                specs, records.ledger.get(uid, ()), node=records.node, created_at=time.time()
            )
            if forget:
                # A pod that outlives corelane in its grace period is not recreated by the next start.
                node_objects.enter_deletion(backend, manifest)
                recovery.forgotten.append(f"{specs[0].namespace}/{specs[0].pod}")
            else:
                _enter(backend, recovery, specs[0], manifest, whole=whole)
        for line in recovery.lines():
            _log.warning("pods not in the API server's data", what=line)

    return enter


def _enter(
    backend: Backend, recovery: Recovery, first: ContainerSpec, manifest: Manifest, *, whole: bool
) -> None:
    name = _first_valid(backend, (manifest, pod_manifest.without_references(manifest)))
    if name is None:
        recovery.unlisted.add(first.pod_uid)
        return
    title = f"{first.namespace}/{name}"
    recovery.recreated.append(title)
    if not whole:
        recovery.partly.append(title)


def _first_valid(backend: Backend, manifests: Iterable[Manifest]) -> str | None:
    for manifest in manifests:
        try:
            return node_objects.restore_pod(backend, manifest)
        except StatusError as error:
            _log.warning("recorded pod not valid", pod=manifest["metadata"].get("name"), why=error.message)
    return None
