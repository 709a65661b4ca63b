"""The node that `corelane allocate` asks: machine, settings, and the CPUs that are allocated already.

They come from options, from files of settings, from a Node or its NodeResourceTopology, and from the state
file of corelane or of a kubelet.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast

from corelane import node
from corelane.app import kubelet_settings, machines, nodefile
from corelane.app.kubelet_settings import KubeletOptions, NodeResources
from corelane.app.pod_manifests import objects
from corelane.app.state import files
from corelane.app.state.files import StateFileError
from corelane.cpuset import CPUSet, named, verb
from corelane.machine.model import Machine
from corelane.node import NodeConfigError, codec
from corelane.node.config import AllocatorName, IsolatedCPUs, NodeConfig
from corelane.node.entries import Entry, Origin, Phase, Sharing
from corelane.node.explain import what_if
from corelane.node.explain.pod_explanation import PodExplanation
from corelane.node.kubelet import validation
from corelane.node.ledger import LedgerError, NodeState, usable_topology, with_entries
from corelane.settings import SettingsError, cpu_list
from corelane.view import allocate as view
from corelane.view import tables
from corelane.workload import PlacementSpec, PodQOS
from corelane.workload.request import ContainerKind, PodRequest, QOSClass


@dataclass(frozen=True, slots=True)
class PoolOverrides:
    """A node's own settings beside its kubelet's; empty or None where an option is not given."""

    allocator: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    """The Node's."""
    node: Path | None = None
    """A manifest of the Node, of its NodeResourceTopology, or of both."""
    config: Path | None = None
    """A file of settings, as `corelane up --node-config` takes it."""
    isolate: str = ""
    """CPUs that the kernel isolates, instead of the machine's (a CPU list)."""
    isolated_cpus: str = ""
    guaranteed_default: str = ""
    be_minimum: int | None = None
    strict_requests: bool = False

    @property
    def file(self) -> NodeConfig:
        """Read the file of settings. Raises NodeFileError."""
        return nodefile.load(self.config) if self.config else NodeConfig()

    @property
    def options(self) -> dict[str, Any]:
        """Return the pool options that are given."""
        options: dict[str, Any] = {
            "allocator": cast("AllocatorName", self.allocator),
            "isolated_cpus": cast("IsolatedCPUs", self.isolated_cpus),
            "guaranteed_default": self.guaranteed_default and PodQOS(self.guaranteed_default),
            "be_minimum": self.be_minimum,
            "strict_requests": self.strict_requests or None,
        }
        return {name: value for name, value in options.items() if value not in (None, "")}

    def explain(self, error: NodeConfigError) -> str:
        """Name a setting that the machine cannot satisfy by its option, or by its field in the file."""
        if error.field in self.options:
            return f"--{error.field.replace('_', '-')}: {error.detail}"
        return f"{self.config}: {nodefile.explain(error)}" if self.config else str(error)


@dataclass(frozen=True, slots=True)
class NodeQuery:
    """The node as the command line describes it: machine, state file, and settings."""

    machine: str | None = None
    state: Path | None = None
    kubelet: KubeletOptions = field(default_factory=KubeletOptions)
    resources: NodeResources = field(default_factory=NodeResources)
    pools: PoolOverrides = field(default_factory=PoolOverrides)


@dataclass(frozen=True, slots=True)
class _Published:
    """The content of a Node and of its NodeResourceTopology."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    state: NodeState | None = None
    """Machine and bound CPUs, of a NodeResourceTopology."""
    kubelet: Any = None
    """Its `KubeletSettings`."""


def read(where: NodeQuery) -> tuple[NodeState, tuple[str, ...]]:
    """Return the node's state before the request, and the problems found in it as sentences.

    With a kubelet's release or state file the node has all online CPUs, as a kubelet sees it; else those that
    this process is allowed to use. Raises SettingsError, StateFileError, NodeConfigError.
    """
    content = files.read(where.state) if where.state else b""
    is_ledger = b'"corelane-ledger"' in content
    published = _published(where.pools.node) if where.pools.node else _Published()
    all_online = bool(where.kubelet.version) or (bool(content) and not is_ledger)
    if published.state is not None and where.machine is None:
        machine = published.state.machine
    else:
        machine = (kubelet_settings.hardware if all_online else machines.load)(where.machine)
    if where.pools.isolate:
        isolated = cpu_list("--isolate", where.pools.isolate)
        if missing := isolated - machine.online:
            these = f"{named(missing.mask)} {verb(missing.mask)}"
            raise SettingsError(f"--isolate: {these} not on this machine, which has {machine.online}")
        machine = replace(machine, isolated=isolated)
    machine = kubelet_settings.with_memory(machine, where.resources)
    try:
        state = node.new(machine, _config(machine, where, published))
    except NodeConfigError as error:
        raise NodeConfigError(where.pools.explain(error)) from None
    if where.state is None:
        return _rebased(published.state, state) if published.state is not None else (state, ())
    if is_ledger:
        try:
            return _rebased(codec.decode(content, state.machine, state.config), state)
        except LedgerError as error:
            raise StateFileError(f"{where.state}: {error}") from None
    if state.config.policy != "pools":
        return _from_checkpoint(where.state, state), ()
    return _rebased(_from_checkpoint(where.state, node.new(machine, kubelet_config(where, machine))), state)


# Settings.


def _config(machine: Machine, where: NodeQuery, published: _Published) -> NodeConfig:
    """Combine options, files and manifests. Under policy `pools` a Node's labels precede the kubelet's.

    Raises SettingsError.
    """
    if where.kubelet.policy != "pools":
        return kubelet_config(where, machine)
    from corelane.kube.translate import node_labels

    kubelet = kubelet_settings.config(replace(where.kubelet, policy="static"), exact=False)
    overrides, file = where.pools, where.pools.file
    settings = node_labels.node_labels({**published.labels, **overrides.labels}, published.annotations)
    if settings.faults:
        source = f"{overrides.node}: " if overrides.node and not overrides.labels else ""
        raise SettingsError(f"{source}{settings.faults[0]}")
    pools = file.pools
    if file == NodeConfig() and published.state is not None and published.state.config.policy == "pools":
        pools = published.state.config.pools
    profile, of_options = replace(pools, **overrides.options), where.kubelet
    own_kubelet = published.kubelet
    if own_kubelet is None or of_options.options or of_options.topology_policy or of_options.source:
        own_kubelet = node_labels.KubeletSettings(
            "static",
            of_options.options,
            topology_policy=of_options.topology_policy or "none",
            topology_scope=of_options.topology_scope or "container",
        )
    options = node_labels.pool_options(settings, own_kubelet, profile, usable_topology(machine))
    if overrides.allocator:
        options = replace(options, allocator=profile.allocator)
    has_reservation = kubelet.reserved is not None or kubelet.reserved_count is not None
    reserving = kubelet if has_reservation else file
    config = replace(
        NodeConfig("pools", reserving.reserved, reserving.reserved_count, pools=options),
        memory=file.memory,
        devices=file.devices,
        pod_level=file.pod_level,
    )
    return kubelet_settings.with_resources(config, machine, where.kubelet, where.resources)


def kubelet_config(where: NodeQuery, machine: Machine) -> NodeConfig:
    """Return the settings of a kubelet, or of corelane's own static policy. Raises SettingsError."""
    settings = where.kubelet
    if settings.policy == "pools":
        settings = replace(settings, policy="static")
    exact = bool(settings.version)
    if not settings.topology_policy and not (exact or settings.source):
        settings = replace(settings, topology_policy="best-effort")
    config = kubelet_settings.config(settings, exact=exact)
    if where.pools.config:  # options override the file
        file, settings = where.pools.file, where.kubelet
        if config.reserved is None and config.reserved_count is None:
            config = replace(config, reserved=file.reserved, reserved_count=file.reserved_count)
        if not settings.options:
            config = replace(config, options=file.options)
        if not (settings.topology_policy or settings.topology_scope or settings.topology_options):
            config = replace(config, numa=file.numa)
        config = replace(config, memory=file.memory, devices=file.devices, pod_level=file.pod_level)
    return kubelet_settings.with_resources(config, machine, where.kubelet, where.resources)


# Manifests.


def _published(path: Path) -> _Published:
    """Read a Node, its NodeResourceTopology, or a file with both. Raises SettingsError naming the field."""
    published = _Published()
    for tree in objects(path):
        kind, meta = tree.get("kind"), tree.get("metadata") or {}
        if not isinstance(meta, dict):
            raise SettingsError(f"{path}: metadata: is not an object")
        if kind == "Node":
            labels, annotations = _strings(path, meta, "labels"), _strings(path, meta, "annotations")
            published = replace(published, labels=labels, annotations=annotations)
        elif kind == "NodeResourceTopology":
            published = _with_topology(path, tree, published)
        else:
            raise SettingsError(f"{path}: kind: {kind!r}: --node takes a Node or a NodeResourceTopology")
    return published


def _strings(path: Path, meta: Mapping[str, Any], name: str) -> dict[str, str]:
    texts = meta.get(name) or {}
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise SettingsError(f"{path}: metadata.{name}: keys and values must be strings")
    return texts


def _with_topology(path: Path, tree: Mapping[str, Any], published: _Published) -> _Published:
    import msgspec

    from corelane.kube import decode, translate
    from corelane.kube.decode import Malformed
    from corelane.kube.objects import NodeResourceTopology
    from corelane.kube.translate import node_labels
    from corelane.kube.translate.crane import CraneTopology

    if tree.get("apiVersion") == CraneTopology.api.api_version:
        raise SettingsError(
            f"{path}: a NodeResourceTopology of gocrane counts CPUs without ids: give it as --machine"
        )
    try:
        topology = decode.decode_object(NodeResourceTopology, msgspec.json.encode(tree))
        if isinstance(topology, Malformed):
            raise SettingsError(f"{path}: {topology.error}")
        state = translate.state_from_topology(topology)
        return replace(published, state=state, kubelet=node_labels.published_kubelet(topology))
    except (translate.TranslationError, TypeError) as error:
        raise SettingsError(f"{path}: {error}") from None


# State files.


def _rebased(before: NodeState, state: NodeState) -> tuple[NodeState, tuple[str, ...]]:
    after, problems = node.rebase(before, state.machine, state.config)
    return after, tuple(problem.text for problem in problems)


def _from_checkpoint(path: Path, state: NodeState) -> NodeState:
    """Return the ledger of a kubelet's state. Raises StateFileError if the kubelet would not start."""
    loaded = files.load(path)
    if loaded.fault:
        raise StateFileError(f"{path}: {loaded.fault}")
    failing = validation.broken(validation.check(loaded.checkpoint, state))
    if failing:
        raise StateFileError(
            f"{path}: {failing[0].name}: {failing[0].text}; give --reserved-cpus, --policy and --option as "
            "this kubelet has them; for details run `corelane state verify`"
        )
    entries: list[Entry] = []
    pods: dict[str, int] = {}
    for uid, containers in loaded.checkpoint.entries.items():
        before = 0
        for name, cpus in containers.items():
            # A container with CPUs of an earlier one counts as an init container.
            kind = ContainerKind.INIT if before & cpus.mask else ContainerKind.APP
            before |= cpus.mask
            entries += [_entry(uid, name, cpus, kind)] if cpus else []
        if rest := loaded.checkpoint.pods.get(uid, CPUSet()).mask & ~before:
            entries.append(_entry(uid, "(whole pod)", CPUSet.from_mask(rest), ContainerKind.APP))
        if before | rest:
            pods[uid] = 1000 * (before | rest).bit_count()
    return with_entries(state, {entry.key: entry for entry in entries}, pods)


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


_POD_LEVEL: Final = (
    "spec.resources of the pod is ignored: without feature gate PodLevelResourceManagers the kubelet "
    "runs such a pod in the shared pool"
)


def main(requests: Sequence[PodRequest], where: NodeQuery, output: str, say: Callable[[str], None]) -> int:
    """Print the answers as table, json or svg, pods in their order; return 0 if all are admitted, else 1.

    Raises SettingsError, StateFileError, NodeConfigError and MachineError for bad input.
    """
    state, notes = read(where)
    answers = list(_explanations(state, requests, notes))
    if output == "json":
        plain = [view.plain(one) for one in answers]
        say(json.dumps(plain[0] if len(plain) == 1 else {"pods": plain}, indent=2))
    elif output == "svg":
        say(view.draw(answers[-1]).rstrip("\n"))
    else:
        for one in answers:
            view.show(one, tables.console(), picture=one is answers[-1])
    return 0 if all(one.decision.admitted for one in answers) else 1


def compare(requests: Sequence[PodRequest], where: NodeQuery, output: str, say: Callable[[str], None]) -> int:
    """Print the answers of all allocators as table or json. Raises as `main` does."""
    state, notes = read(where)
    kubelet = kubelet_config(where, state.machine)
    options = state.config.pools
    configs = {
        "kubelet": kubelet,
        "koordinator": replace(state.config, pools=replace(options, allocator="koordinator")),
        "optimal": replace(state.config, pools=replace(options, allocator="optimal")),
    }
    states = {name: node.rebase(state, state.machine, config)[0] for name, config in configs.items()}
    answers = list(what_if.compare(states, tuple(requests)))
    if output == "json":
        say(json.dumps({"pods": view.plain_comparison(answers), "notes": list(notes)}, indent=2))
    else:
        view.show_comparison(answers, tables.console())
        for note in notes:
            say(f"note: {note}")
    return 0


def _explanations(
    state: NodeState, requests: Sequence[PodRequest], notes: tuple[str, ...]
) -> Iterator[PodExplanation]:
    for request in requests:
        without = [container.name for container in request.containers if not container.memory_request]
        if without and state.memory and request.qos is QOSClass.GUARANTEED and not request.level:
            raise SettingsError(
                f"container {without[0]}: no memory request: the memory manager allocates memory to "
                "Guaranteed pods; give --memory, such as 4Gi"
            )
        state, explanation = what_if.explain(state, request, (*_notes(state, request), *notes))
        yield explanation


def _notes(state: NodeState, request: PodRequest) -> Iterator[str]:
    if request.level is not None and not state.config.pod_level:
        yield _POD_LEVEL
    if state.config.policy != "pools" and request.placement_spec != PlacementSpec():
        yield f"{request.key}: CPU placement labels and annotations are ignored: they need --policy pools"
    requested = {name for one in request.containers for name, count in one.devices.items() if count}
    if missing := sorted(requested - state.config.devices.keys()):
        yield (
            f"{request.key}: the node has no device {', '.join(missing)}, so no scheduler would choose it; "
            "describe the node's devices with --node-device"
        )
