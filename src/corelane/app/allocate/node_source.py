"""The node of policy `pools` that `corelane allocate` asks: from flags, a Node, or a NodeResourceTopology."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from corelane.app import nodefile
from corelane.app.allocate.requests import AskError, objects_from
from corelane.app.state.kubelet_settings import Settings
from corelane.cpuset import CPUSet, CPUSetError, named, verb
from corelane.machine.model import Machine
from corelane.node import NodeConfig, NodeConfigError, NodeState, PoolOptions
from corelane.node.ledger import usable_topology
from corelane.node.pools.options import AllocatorName, IsolatedCPUs
from corelane.workload import PodQOS

__all__ = ["PoolFlags", "Published", "isolated", "labels_of", "pooled", "published"]


@dataclass(frozen=True, slots=True)
class PoolFlags:
    """What is said of a node beside its kubelet; empty and None where nothing was."""

    allocator: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    """The Node's."""
    node: Path | None = None
    """A manifest of the Node, or its NodeResourceTopology."""
    config: Path | None = None
    """The node's settings as `corelane up --node-config` takes them."""
    isolate: str = ""
    """CPUs that the kernel isolates, instead of what the machine says."""
    isolated_cpus: str = ""
    guaranteed_default: str = ""
    be_minimum: int | None = None
    strict_requests: bool = False

    @property
    def file(self) -> NodeConfig:
        """What the file of settings says. Raises NodeFileError."""
        return nodefile.load(self.config) if self.config else NodeConfig()

    @property
    def said(self) -> dict[str, Any]:
        """The options that flags name."""
        said: dict[str, Any] = {
            "allocator": cast("AllocatorName", self.allocator),
            "isolated_cpus": cast("IsolatedCPUs", self.isolated_cpus),
            "guaranteed_default": self.guaranteed_default and PodQOS(self.guaranteed_default),
            "be_minimum": self.be_minimum,
            "strict_requests": self.strict_requests or None,
        }
        return {name: value for name, value in said.items() if value not in (None, "")}

    def explain(self, error: NodeConfigError) -> str:
        """A setting that the machine cannot honour, by the name of its flag, or its name in the file."""
        field, _, rest = str(error).partition(":")
        if field in self.said:
            return f"--{field.replace('_', '-')}:{rest}"
        return f"{self.config}: {nodefile.explain(error)}" if self.config else str(error)


@dataclass(frozen=True, slots=True)
class Published:
    """What a manifest tells of a node."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    state: NodeState | None = None
    """Its machine, and who is bound there, as its NodeResourceTopology says."""
    kubelet: Any = None
    """The `KubeletSettings` that it names."""


def published(path: Path) -> Published:
    """What a Node, its NodeResourceTopology, or a file with both says. Raises AskError naming the field."""
    found = Published()
    for tree in objects_from(path):
        kind, meta = tree.get("kind"), tree.get("metadata") or {}
        if not isinstance(meta, dict):
            raise AskError(f"{path}: metadata: is no object")
        if kind == "Node":
            found = replace(
                found,
                labels=_texts(path, meta, "labels"),
                annotations=_texts(path, meta, "annotations"),
            )
        elif kind == "NodeResourceTopology":
            found = _with_topology(path, tree, found)
        else:
            raise AskError(f"{path}: kind: {kind!r}: --node takes a Node or a NodeResourceTopology")
    return found


def _texts(path: Path, meta: Mapping[str, Any], name: str) -> dict[str, str]:
    texts = meta.get(name) or {}
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise AskError(f"{path}: metadata.{name}: must be keys and strings")
    return texts


def _with_topology(path: Path, tree: Mapping[str, Any], found: Published) -> Published:
    import msgspec

    from corelane.kube import decode, translate
    from corelane.kube.crane import CraneTopology
    from corelane.kube.decode import Malformed
    from corelane.kube.node import NodeResourceTopology
    from corelane.kube.translate import kubelets

    if tree.get("apiVersion") == CraneTopology.api.api_version:
        raise AskError(f"{path}: gocrane's object says how many CPUs, not which: give it as --machine")
    try:
        topology = decode.one(NodeResourceTopology, msgspec.json.encode(tree))
        if isinstance(topology, Malformed):
            raise AskError(f"{path}: {topology.error}")
        state = translate.state_from_topology(topology)
        return replace(found, state=state, kubelet=kubelets.read(topology))
    except (translate.TranslationError, TypeError) as error:
        raise AskError(f"{path}: {error}") from None


def isolated(machine: Machine, text: str) -> Machine:
    """The machine with other isolated CPUs. Raises AskError."""
    if not text:
        return machine
    try:
        cpus = CPUSet.parse(text)
    except CPUSetError as error:
        raise AskError(f"--isolate: {text!r} is no CPU list such as 2-7,10-15: {error}") from None
    if missing := cpus - machine.online:
        these = f"{named(missing.mask)} {verb(missing.mask)}"
        raise AskError(f"--isolate: {these} not on this machine: it has {machine.online}")
    return replace(machine, isolated=cpus)


def pooled(
    config: NodeConfig, machine: Machine, said: Settings, flags: PoolFlags, found: Published
) -> NodeConfig:
    """A node's settings under policy `pools`: labels first, then the kubelet's options, then flags.

    Raises AskError for a label or annotation that cannot be meant.
    """
    from corelane.kube.translate import nodesettings

    settings = nodesettings.read({**found.labels, **flags.labels}, found.annotations)
    if settings.faults:
        where = f"{flags.node}: " if flags.node and not flags.labels else ""
        raise AskError(f"{where}{settings.faults[0]}")
    file = flags.file
    profile = replace(_profile(file, found), **flags.said)
    topology = usable_topology(machine)
    options = nodesettings.pool_options(settings, _kubelet(said, found), profile, topology)
    if flags.allocator:
        options = replace(options, allocator=profile.allocator)
    named = config.reserved is not None or config.reserved_count is not None
    kept = config if named else file
    return replace(
        NodeConfig("pools", kept.reserved, kept.reserved_count, pools=options),
        memory=file.memory,
        devices=file.devices,
        pod_level=file.pod_level,
    )


def _profile(file: NodeConfig, found: Published) -> PoolOptions:
    """What a file says of the node, else what it publishes of its own settings."""
    if file == NodeConfig() and found.state is not None and found.state.config.policy == "pools":
        return found.state.config.pools
    return file.pools


def _kubelet(said: Settings, found: Published) -> Any:
    """The kubelet's settings by options or its file, else as published."""
    from corelane.kube.translate.kubelets import KubeletSettings

    if not (said.options or said.topology_policy or said.source) and found.kubelet is not None:
        return found.kubelet
    policy, scope = said.topology_policy or "none", said.topology_scope or "container"
    return KubeletSettings("static", said.options, topology_policy=policy, topology_scope=scope)


def labels_of(texts: Sequence[str]) -> dict[str, str]:
    """`--node-label KEY=VALUE`, read. Raises AskError."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise AskError(f"--node-label: {text!r} is not KEY=VALUE")
        found[key] = value
    return found
