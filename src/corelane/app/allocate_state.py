"""The node that `corelane allocate` asks: its machine and settings, and what is handed out already."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from corelane import node
from corelane.app import machines, node_settings, state_file, state_rules, state_settings
from corelane.app.node_settings import NodeSettings
from corelane.app.state_errors import StateFileError
from corelane.app.state_settings import Settings
from corelane.cpuset import CPUSet
from corelane.node import Entry, LedgerError, NodeState, Origin, Phase, codec
from corelane.node.checkpoint import Checkpoint
from corelane.node.entries import Key, Sharing
from corelane.node.ledger import with_entries
from corelane.workload import ContainerKind, QOSClass

__all__ = ["situation"]


def situation(
    source: str | None, path: Path | None, settings: Settings, more: NodeSettings | None = None
) -> tuple[NodeState, tuple[str, ...]]:
    """The node's state before the request, and what has to be said about it.

    A kubelet, whose release or state is given, sees all online CPUs; corelane those it may use.
    """
    content = state_file.read(path) if path else b""
    ledger = b'"corelane-ledger"' in content
    exact = bool(settings.version)
    if not settings.topology_policy and not (exact or settings.source):
        settings = replace(settings, topology_policy="best-effort")
    kubelets = exact or (bool(content) and not ledger)
    more = more or NodeSettings()
    machine = state_settings.hardware(source) if kubelets else machines.load(source)
    machine = node_settings.with_memory(machine, more)
    config = node_settings.applied(state_settings.config(settings, exact=exact), machine, more)
    state = node.new(machine, config)
    if path is None:
        return state, ()
    return _from_ledger(path, content, state) if ledger else (_from_checkpoint(path, state), ())


def _from_ledger(path: Path, content: bytes, state: NodeState) -> tuple[NodeState, tuple[str, ...]]:
    try:
        read = codec.decode(content, state.machine, state.config)
    except LedgerError as error:
        raise StateFileError(f"{path}: {error}") from None
    fitted, problems = node.rebase(read, state.machine, state.config)
    return fitted, tuple(problem.text for problem in problems)


def _from_checkpoint(path: Path, state: NodeState) -> NodeState:
    """The ledger that a kubelet's state comes to. Raises StateFileError if none would start with it."""
    loaded = state_file.load(path)
    if loaded.fault:
        raise StateFileError(f"{path}: {loaded.fault}")
    failing = state_rules.broken(state_rules.check(loaded.checkpoint, state))
    if failing:
        raise StateFileError(
            f"{path}: {failing[0].name}: {failing[0].text}: with --reserved-cpus, --policy and --option "
            "as the kubelet has them; `corelane state verify` says more"
        )
    entries: dict[Key, Entry] = {entry.key: entry for entry in _entries(loaded.checkpoint)}
    pods: dict[str, int] = {}
    for entry in entries.values():
        pods[entry.uid] = pods.get(entry.uid, 0) | entry.cpus.mask
    return with_entries(state, entries, {uid: 1000 * mask.bit_count() for uid, mask in pods.items()})


def _entries(found: Checkpoint) -> Iterator[Entry]:
    """An entry for each container; one whose CPUs a sibling has too counts as an init container."""
    for uid, containers in found.entries.items():
        before = 0
        for name, cpus in containers.items():
            kind = ContainerKind.INIT if before & cpus.mask else ContainerKind.APP
            before |= cpus.mask
            if cpus:
                yield _entry(uid, name, cpus, kind)
        if rest := found.pods.get(uid, CPUSet()).mask & ~before:
            yield _entry(uid, "(whole pod)", CPUSet.from_mask(rest), ContainerKind.APP)


def _entry(uid: str, name: str, cpus: CPUSet, kind: ContainerKind) -> Entry:
    return Entry(
        uid=uid,
        container=name,
        pod=uid,
        cpus=cpus,
        sharing=Sharing.ALONE,
        cls=QOSClass.GUARANTEED.value,
        kind=kind,
        origin=Origin.KUBELET,
        allocator="kubelet",
        phase=Phase.CONFIRMED,
        cpu_request=1000 * len(cpus),
    )
