"""The node that `corelane allocate` asks: its machine and settings, and what is handed out already."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from corelane import node
from corelane.app import machines, node_settings
from corelane.app.allocate import node_source
from corelane.app.allocate.node_source import PoolFlags, Published
from corelane.app.node_settings import NodeSettings
from corelane.app.state import files, kubelet_settings
from corelane.app.state.files import StateFileError
from corelane.app.state.kubelet_settings import Settings
from corelane.cpuset import CPUSet
from corelane.machine.model import Machine
from corelane.node import Entry, LedgerError, NodeConfig, NodeConfigError, NodeState, Origin, Phase, codec
from corelane.node.entries import Key, Sharing
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.node.ledger import with_entries
from corelane.node.recovery import start_rules
from corelane.workload import ContainerKind, QOSClass

__all__ = ["Where", "kubelets_config", "situation"]


@dataclass(frozen=True, slots=True)
class Where:
    """The node that is asked: what was said of its machine, its settings, and what is handed out there."""

    machine: str | None = None
    state: Path | None = None
    settings: Settings = field(default_factory=Settings)
    more: NodeSettings = field(default_factory=NodeSettings)
    flags: PoolFlags = field(default_factory=PoolFlags)


def situation(where: Where) -> tuple[NodeState, tuple[str, ...]]:
    """The node's state before the request, and what has to be said about it.

    A kubelet, whose release or state is given, sees all online CPUs; corelane those it may use.
    """
    path, settings, flags = where.state, where.settings, where.flags
    content = files.read(path) if path else b""
    ledger = b'"corelane-ledger"' in content
    known = node_source.published(flags.node) if flags.node else Published()
    kubelets = bool(settings.version) or (bool(content) and not ledger)
    machine = _machine(where.machine, known, flags, kubelets=kubelets)
    machine = node_settings.with_memory(machine, where.more)
    state = _new(machine, where, known)
    if path is None:
        return _fitted(known.state, state) if known.state is not None else (state, ())
    if ledger:
        return _from_ledger(path, content, state)
    if state.config.policy != "pools":
        return _from_checkpoint(path, state), ()
    before = node.new(machine, kubelets_config(where, machine))
    return _fitted(_from_checkpoint(path, before), state)


def _new(machine: Machine, where: Where, known: Published) -> NodeState:
    """The node without its pods. Raises NodeConfigError, with the name by which a setting was given."""
    try:
        return node.new(machine, _config(machine, where, known))
    except NodeConfigError as error:
        raise NodeConfigError(where.flags.explain(error)) from None


def _machine(source: str | None, known: Published, flags: PoolFlags, *, kubelets: bool) -> Machine:
    if known.state is not None and source is None:
        machine = known.state.machine
    else:
        machine = kubelet_settings.hardware(source) if kubelets else machines.load(source)
    return node_source.isolated(machine, flags.isolate)


def _config(machine: Machine, where: Where, known: Published) -> NodeConfig:
    """The node's settings, by flags, files and manifests. Raises AskError, SettingsError."""
    if where.settings.policy != "pools":
        return kubelets_config(where, machine)
    kubelets = kubelet_settings.config(replace(where.settings, policy="static"), exact=False)
    config = node_source.pooled(kubelets, machine, where.settings, where.flags, known)
    return node_settings.applied(config, machine, where.more)


def kubelets_config(where: Where, machine: Machine) -> NodeConfig:
    """The settings as those of a kubelet, or of corelane's own policy of its kind. Raises SettingsError."""
    settings = where.settings
    if settings.policy == "pools":
        settings = replace(settings, policy="static")
    exact = bool(settings.version)
    if not settings.topology_policy and not (exact or settings.source):
        settings = replace(settings, topology_policy="best-effort")
    config = kubelet_settings.config(settings, exact=exact)
    if where.flags.config:
        config = _with_file(config, where)
    return node_settings.applied(config, machine, where.more)


def _with_file(config: NodeConfig, where: Where) -> NodeConfig:
    """Options on the command line go before those of the file."""
    file, said = where.flags.file, where.settings
    if config.reserved is None and config.reserved_count is None:
        config = replace(config, reserved=file.reserved, reserved_count=file.reserved_count)
    if not said.options:
        config = replace(config, options=file.options)
    if not (said.topology_policy or said.topology_scope or said.topology_options):
        config = replace(config, numa=file.numa)
    return replace(config, memory=file.memory, devices=file.devices, pod_level=file.pod_level)


def _fitted(read: NodeState, state: NodeState) -> tuple[NodeState, tuple[str, ...]]:
    fitted, problems = node.rebase(read, state.machine, state.config)
    return fitted, tuple(problem.text for problem in problems)


def _from_ledger(path: Path, content: bytes, state: NodeState) -> tuple[NodeState, tuple[str, ...]]:
    try:
        read = codec.decode(content, state.machine, state.config)
    except LedgerError as error:
        raise StateFileError(f"{path}: {error}") from None
    return _fitted(read, state)


def _from_checkpoint(path: Path, state: NodeState) -> NodeState:
    """The ledger that a kubelet's state comes to. Raises StateFileError if none would start with it."""
    loaded = files.load(path)
    if loaded.fault:
        raise StateFileError(f"{path}: {loaded.fault}")
    failing = start_rules.broken(start_rules.check(loaded.checkpoint, state))
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
