"""A node's ledger as an annotation, and back: generation, settings, containers bound to CPUs or a zone.

Of other containers in the pools only their pods' requests are published: a pod that was deleted by force is
gone from the API server while the agent still counts it.
"""

import re
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final

import msgspec

from corelane.cpuset import CPUSet, CPUSetError, named
from corelane.kube.keys import CPU_ALLOCATIONS
from corelane.kube.meta import Wire
from corelane.kube.translate.fields import TranslationError
from corelane.machine.model import Machine
from corelane.node import NodeConfigError, codec, memory_manager
from corelane.node.config import NodeConfig
from corelane.node.entries import (
    Entry,
    Origin,
    Phase,
    PlacedPod,
    Sharing,
    claimed_before,
    placed_pod_of_plain,
    plain_placed_pod,
)
from corelane.node.ledger import NodeState, frozen, new, usable_topology, with_entries
from corelane.placement.memory_blocks import Nodes
from corelane.workload.request import ContainerKind

_FRACTION: Final = re.compile(r"[0-9]{1,9}(?:/[1-9][0-9]{0,8})?", re.ASCII)
_MOST_CONFIGS: Final = 256
_MOST_LABELS: Final = 4096
"""Characters of a pod's labels in the annotation: an API server takes 256 KiB of annotations."""


class _Owned(Wire, frozen=True):
    """A container's entry: its CPUs, the NUMA nodes (`zone`) that it runs on, and other resources."""

    uid: str
    pod: str
    container: str
    cpus: str
    kind: ContainerKind = ContainerKind.APP
    qos_class: str = ""
    origin: Origin = Origin.CORELANE
    phase: Phase = Phase.RESERVED
    allocator: str = ""
    cpu_request: int = 0
    sharing: Sharing = Sharing.ALONE
    common: bool = False
    zone: str | None = None
    more: dict[str, Any] = msgspec.field(default_factory=dict)
    """Memory, devices, and the pod's share; see `node.codec`."""


class _Ledger(Wire, frozen=True):
    generation: int = 0
    config: dict[str, Any] = msgspec.field(default_factory=dict)
    """The node's settings without its reserved CPUs; admission depends on them."""
    reserved: str = ""
    pods: dict[str, int] = msgspec.field(default_factory=dict)
    """UID to the milliCPU that the pod requests at the same time."""
    entries: tuple[_Owned, ...] = ()
    placed_pods: dict[str, dict[str, Any]] = msgspec.field(name="tenants", default_factory=dict)
    """UID to the facts that other pods' placement depends on; see `node.koordinator.zone_shares`."""
    memory: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    """Memory by NUMA node, under a memory manager; see `node.codec`."""
    leased: bool = False
    """Whether the agent renews a Lease as long as it runs. Here, as a former version drops it."""


class _Leased(Wire, frozen=True):
    leased: bool = False


def dump(state: NodeState, *, leased: bool = False) -> str:
    """Return the part of a node's state that the scheduler needs, as text; equal states give equal texts."""
    owners = [entry for entry in state.entries.values() if entry.placed or entry.memory or entry.devices]
    pods = dict(sorted(state.pods.items()))
    placed = {uid: plain_placed_pod(_shortened(pod)) for uid, pod in state.placed_pods.items()}
    config = state.config
    reserved = {node: dict(of) for node, of in config.memory.reserved.items()}
    plain = replace(
        config,
        reserved=None,
        reserved_count=None,
        memory=replace(config.memory, reserved=reserved),
        devices={resource: dict(of) for resource, of in config.devices.items()},
    )
    settings: dict[str, Any] = msgspec.to_builtins(plain, enc_hook=_list, str_keys=True)
    del settings["zones"]
    if config.memory.policy == "None":
        del settings["memory"]
    if not config.devices:
        del settings["devices"]
    if not config.pod_level:
        del settings["pod_level"]
    ledger = _Ledger(
        state.generation,
        settings,
        str(state.reserved),
        pods,
        tuple(map(_owned, owners)),
        placed,
        codec.plain_nodes(state.memory),
        leased,
    )
    return msgspec.json.encode(ledger).decode()


def _shortened(pod: PlacedPod) -> PlacedPod:
    """The pod with its shortest labels only, where all are too long."""
    if sum(map(_length, pod.labels.items())) <= _MOST_LABELS:
        return pod
    by_length = sorted(pod.labels.items(), key=lambda label: (_length(label), label))
    ends = accumulate(map(_length, by_length))
    short = (label for label, end in zip(by_length, ends, strict=True) if end <= _MOST_LABELS)
    return replace(pod, labels=dict(short))


def _length(label: tuple[str, str]) -> int:
    return len(label[0]) + len(label[1])


def _owned(entry: Entry) -> _Owned:
    return _Owned(
        entry.uid,
        entry.pod,
        entry.container,
        str(entry.cpus),
        entry.kind,
        entry.cls,
        entry.origin,
        entry.phase,
        entry.allocator,
        entry.cpu_request,
        entry.sharing,
        entry.common,
        None if entry.zone is None else str(entry.zone),
        codec.plain(entry),
    )


def load(text: str, machine: Machine) -> NodeState:
    """Return the state that `dump` wrote; an empty text is a node without exclusive CPUs.

    Raises TranslationError for an invalid text, or one that contradicts the machine or itself.
    """
    ledger = _decoded(text) if text else _Ledger()
    reserved = _cpus(text, "reserved", ledger.reserved) or None
    try:
        state = _empty_state(machine, _config(ledger.config, reserved))
    except (NodeConfigError, msgspec.ValidationError) as error:
        raise _broken(text, f"config: {error}") from error
    entries = {(owned.uid, owned.container): _entry(text, owned) for owned in ledger.entries}
    for entry, twice in claimed_before(entries.values()):
        if missing := entry.cpus.mask & ~state.topology.all:
            what = f"{named(missing)}, which the machine does not have"
            raise _broken(text, f"{entry.pod}/{entry.container} owns {what}")
        if twice:
            what = f"{named(twice)}, which another has too"
            raise _broken(text, f"{entry.pod}/{entry.container} owns {what}")
    state = replace(state, placed_pods=frozen(_placed_pods(text, ledger)), memory=_memory(text, ledger))
    return replace(with_entries(state, entries, ledger.pods), generation=ledger.generation)


_CONFIGS: Final[dict[tuple[str, CPUSet | None], NodeConfig]] = {}
"""Settings that were read: most nodes of a cluster have the same."""


def _config(published: dict[str, Any], reserved: CPUSet | None) -> NodeConfig:
    """Return the settings. Raises ValidationError and NodeConfigError."""
    key = repr(published), reserved
    config = _CONFIGS.get(key)
    if config is None:
        settings = published | {"reserved": None}
        config = msgspec.convert(settings, NodeConfig, dec_hook=_parsed, str_keys=True)
        if len(_CONFIGS) >= _MOST_CONFIGS:
            _CONFIGS.clear()
        config = _CONFIGS[key] = replace(config, reserved=reserved)
    return config


def is_leased(text: str) -> bool:
    """Return whether the agent that wrote this renews a Lease as long as it runs."""
    try:
        return msgspec.json.decode(text, type=_Leased).leased
    except (ValueError, RecursionError):
        return False


def _empty_state(machine: Machine, config: NodeConfig) -> NodeState:
    """The node without pods. Under pools, settings may name CPUs that the node no longer has."""
    if config.policy != "pools":
        return new(machine, config)
    config.pools.check_values()
    return NodeState(machine, config, usable_topology(machine), config.reserved or CPUSet())


def _memory(text: str, ledger: _Ledger) -> Nodes:
    try:
        return frozen(codec.nodes_of(ledger.memory))
    except ValueError as error:
        raise _broken(text, f"memory: {error}") from error


def _placed_pods(text: str, ledger: _Ledger) -> dict[str, PlacedPod]:
    try:
        return {uid: placed_pod_of_plain(plain) for uid, plain in ledger.placed_pods.items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _broken(text, f"tenants: {error}") from error


def _list(value: object) -> str:
    if isinstance(value, CPUSet | Fraction):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} in a node's settings")


def _parsed(kind: type, value: object) -> CPUSet | Fraction:
    """Raises ValueError, whose text becomes part of the TranslationError."""
    if kind is CPUSet and isinstance(value, str):
        return CPUSet.parse(value)
    if kind is Fraction and isinstance(value, str) and _FRACTION.fullmatch(value):
        return Fraction(value)
    raise ValueError(f"{value!r} is not a {'CPU list' if kind is CPUSet else 'fraction such as 3/2'}")


def _entry(text: str, owned: _Owned) -> Entry:
    cpus = _cpus(text, f"the entry of {owned.pod}/{owned.container}", owned.cpus)
    try:
        more = codec.of_plain(owned.more)
    except ValueError as error:
        raise _broken(text, f"the entry of {owned.pod}/{owned.container}: {error}") from error
    return Entry(
        uid=owned.uid,
        container=owned.container,
        pod=owned.pod,
        cpus=cpus,
        sharing=owned.sharing,
        common=owned.common,
        zone=None
        if owned.zone is None
        else _cpus(text, f"the zone of {owned.pod}/{owned.container}", owned.zone),
        cls=owned.qos_class,
        kind=owned.kind,
        origin=owned.origin,
        phase=owned.phase,
        allocator=owned.allocator,
        cpu_request=owned.cpu_request,
        **{**more, "mems": memory_manager.mems(more["memory"])} if "memory" in more else more,
    )


def _decoded(text: str) -> _Ledger:
    try:
        return msgspec.json.decode(text, type=_Ledger)
    except (ValueError, RecursionError) as error:
        raise _broken(text, str(error)) from error


def _cpus(text: str, what: str, value: str) -> CPUSet:
    try:
        return _few(value) if len(value) <= _LONGEST_KEPT else CPUSet.parse(value)
    except CPUSetError as error:
        raise _broken(text, f"{what}: {value!r} is not a CPU list: {error}") from error


_LONGEST_KEPT: Final = 256
_few: Final = lru_cache(4096)(CPUSet.parse)
"""Sets are alike on alike nodes."""


def _broken(text: str, why: str) -> TranslationError:
    return TranslationError(f"metadata.annotations[{CPU_ALLOCATIONS}]", text, why)
