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
from corelane.node.config import AllocatorName, IsolatedCPUs, NodeConfig, PoolOptions
from corelane.node.entries import Entry, Key, Origin, Phase, Sharing
from corelane.node.explain import what_if
from corelane.node.explain.pod_explanation import PodExplanation
from corelane.node.kubelet import validation
from corelane.node.kubelet.checkpoint import Checkpoint
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
    machine = _machine(where, published, all_online=all_online)
    try:
        state = node.new(machine, _config(machine, where, published))
    except NodeConfigError as error:
        raise NodeConfigError(where.pools.explain(error)) from None
    if where.state is None:
        return _rebased(published.state, state) if published.state is not None else (state, ())
    if is_ledger:
        return _rebased(_from_ledger(where.state, content, state), state)
    if state.config.policy != "pools":
        return _from_checkpoint(where.state, state), ()
    return _rebased(_from_checkpoint(where.state, node.new(machine, kubelet_config(where, machine))), state)


def _machine(where: NodeQuery, published: _Published, *, all_online: bool) -> Machine:
    """Raises SettingsError, MachineError."""
    if published.state is not None and where.machine is None:
        machine = published.state.machine
    else:
        load = kubelet_settings.hardware if all_online else machines.load
        machine = load(where.machine)
    return kubelet_settings.with_memory(_isolated(machine, where.pools.isolate), where.resources)


def _isolated(machine: Machine, text: str) -> Machine:
    """Replace the machine's isolated CPUs. Raises SettingsError."""
    if not text:
        return machine
    cpus = cpu_list("--isolate", text)
    if missing := cpus - machine.online:
        these = f"{named(missing.mask)} {verb(missing.mask)}"
        raise SettingsError(f"--isolate: {these} not on this machine, which has {machine.online}")
    return replace(machine, isolated=cpus)


# Settings.


def _config(machine: Machine, where: NodeQuery, published: _Published) -> NodeConfig:
    """Combine options, files and manifests. Raises SettingsError."""
    if where.kubelet.policy != "pools":
        return kubelet_config(where, machine)
    kubelet = kubelet_settings.config(replace(where.kubelet, policy="static"), exact=False)
    config = _pool_config(kubelet, machine, where, published)
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
    if where.pools.config:
        config = _with_file(config, where)
    return kubelet_settings.with_resources(config, machine, where.kubelet, where.resources)


def _with_file(config: NodeConfig, where: NodeQuery) -> NodeConfig:
    """Complete the settings from the file; options override it."""
    file, settings = where.pools.file, where.kubelet
    if config.reserved is None and config.reserved_count is None:
        config = replace(config, reserved=file.reserved, reserved_count=file.reserved_count)
    if not settings.options:
        config = replace(config, options=file.options)
    if not (settings.topology_policy or settings.topology_scope or settings.topology_options):
        config = replace(config, numa=file.numa)
    return replace(config, memory=file.memory, devices=file.devices, pod_level=file.pod_level)


def _pool_config(
    kubelet: NodeConfig, machine: Machine, where: NodeQuery, published: _Published
) -> NodeConfig:
    """Return the settings under policy `pools`: the Node's labels first, then the kubelet's, then options.

    Raises SettingsError for an invalid label or annotation.
    """
    from corelane.kube.translate import node_labels

    overrides, file = where.pools, where.pools.file
    settings = node_labels.node_labels({**published.labels, **overrides.labels}, published.annotations)
    if settings.faults:
        source = f"{overrides.node}: " if overrides.node and not overrides.labels else ""
        raise SettingsError(f"{source}{settings.faults[0]}")
    profile = replace(_profile(file, published), **overrides.options)
    topology = usable_topology(machine)
    options = node_labels.pool_options(settings, _published_kubelet(where, published), profile, topology)
    if overrides.allocator:
        options = replace(options, allocator=profile.allocator)
    has_reservation = kubelet.reserved is not None or kubelet.reserved_count is not None
    reserving = kubelet if has_reservation else file
    return replace(
        NodeConfig("pools", reserving.reserved, reserving.reserved_count, pools=options),
        memory=file.memory,
        devices=file.devices,
        pod_level=file.pod_level,
    )


def _profile(file: NodeConfig, published: _Published) -> PoolOptions:
    """Return the pool options of the file, else those that the node publishes."""
    if file == NodeConfig() and published.state is not None and published.state.config.policy == "pools":
        return published.state.config.pools
    return file.pools


def _published_kubelet(where: NodeQuery, published: _Published) -> Any:
    """Return the kubelet's settings from options or its file, else as the node publishes them."""
    from corelane.kube.translate.node_labels import KubeletSettings

    settings = where.kubelet
    if (
        not (settings.options or settings.topology_policy or settings.source)
        and published.kubelet is not None
    ):
        return published.kubelet
    policy, scope = settings.topology_policy or "none", settings.topology_scope or "container"
    return KubeletSettings("static", settings.options, topology_policy=policy, topology_scope=scope)


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


def _from_ledger(path: Path, content: bytes, state: NodeState) -> NodeState:
    try:
        return codec.decode(content, state.machine, state.config)
    except LedgerError as error:
        raise StateFileError(f"{path}: {error}") from None


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
    entries: dict[Key, Entry] = {entry.key: entry for entry in _entries(loaded.checkpoint)}
    pods: dict[str, int] = {}
    for entry in entries.values():
        pods[entry.uid] = pods.get(entry.uid, 0) | entry.cpus.mask
    return with_entries(state, entries, {uid: 1000 * mask.bit_count() for uid, mask in pods.items()})


def _entries(checkpoint: Checkpoint) -> Iterator[Entry]:
    """Yield an entry for each container; one with CPUs of an earlier one counts as an init container."""
    for uid, containers in checkpoint.entries.items():
        before = 0
        for name, cpus in containers.items():
            kind = ContainerKind.INIT if before & cpus.mask else ContainerKind.APP
            before |= cpus.mask
            if cpus:
                yield _entry(uid, name, cpus, kind)
        if rest := checkpoint.pods.get(uid, CPUSet()).mask & ~before:
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
    states = _allocator_states(state, kubelet_config(where, state.machine))
    answers = list(what_if.compare(states, tuple(requests)))
    if output == "json":
        say(json.dumps({"pods": view.plain_comparison(answers), "notes": list(notes)}, indent=2))
    else:
        view.show_comparison(answers, tables.console())
        for note in notes:
            say(f"note: {note}")
    return 0


def _allocator_states(pooled: NodeState, kubelet: NodeConfig) -> dict[str, NodeState]:
    """Return the node under each allocator: policy `static` with this configuration for the kubelet's."""
    options = pooled.config.pools
    configs = {
        "kubelet": kubelet,
        "koordinator": replace(pooled.config, pools=replace(options, allocator="koordinator")),
        "optimal": replace(pooled.config, pools=replace(options, allocator="optimal")),
    }
    return {name: node.rebase(pooled, pooled.machine, config)[0] for name, config in configs.items()}


def _explanations(
    state: NodeState, requests: Sequence[PodRequest], notes: tuple[str, ...]
) -> Iterator[PodExplanation]:
    for request in requests:
        _check_memory(state, request)
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


def _check_memory(state: NodeState, request: PodRequest) -> None:
    """Raises SettingsError for a Guaranteed pod without a memory request where memory is allocated too."""
    if state.memory and request.qos is QOSClass.GUARANTEED and not request.level:
        for container in request.containers:
            if not container.memory_request:
                raise SettingsError(
                    f"container {container.name}: no memory request: the memory manager allocates memory to "
                    "Guaranteed pods; give --memory, such as 4Gi"
                )
