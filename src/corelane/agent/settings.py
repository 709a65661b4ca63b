"""What the Node's labels and annotations say about its settings, over those that the agent was started with.

What cannot be meant, or not on this machine, changes nothing: each label stays as it was last understood. So
that a start does not depend on an API server, what holds is kept in a file beside the ledger.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from corelane.kernel import files
from corelane.kube import keys
from corelane.kube.translate import node_labels
from corelane.kube.translate.node_labels import KubeletSettings
from corelane.machine.model import Machine
from corelane.node import NodeConfig, NodeConfigError
from corelane.node.config import check
from corelane.node.ledger import usable_topology

__all__ = ["FILE_NAME", "Said", "Settings", "load", "save"]

FILE_NAME: Final = "settings.json"
_LABELS: Final = (
    keys.NODE_POLICY,
    keys.NODE_ALLOCATOR,
    keys.NODE_BIND_POLICY,
    keys.NODE_BIND_POLICY_PROPOSED,
    keys.NODE_NUMA_STRATEGY,
    keys.NODE_NUMA_POLICY,
    keys.NODE_NUMA_ALIGNMENT,
    keys.CRANE_AWARENESS,
)
_ANNOTATIONS: Final = (keys.RESERVATION, keys.SYSTEM_QOS, keys.AMPLIFICATION)
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Said:
    """The labels and annotations that count, as they were last understood."""

    labels: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    annotations: Mapping[str, str] = field(default_factory=lambda: _NOTHING)


@dataclass(frozen=True, slots=True)
class Record:
    """What the file says: the policy under which the agent ran last, "" if it never did."""

    policy: str = ""
    said: Said = field(default_factory=Said)


class Settings:
    """What holds for one node: `config`, from the profile that the agent was given and from the Node."""

    def __init__(self, profile: NodeConfig, machine: Machine, record: Record) -> None:
        """Raises NodeConfigError for a profile that makes no sense on this machine."""
        self._profile = profile
        self._told: set[str] = set()
        self.said = record.said
        try:
            self.config = effective(profile, machine, record.said)
        except NodeConfigError:
            self.said = Said()
            self.config = effective(profile, machine, self.said)
        self.saved = record == self.record

    @property
    def record(self) -> Record:
        """What is to be in the file."""
        return Record(self.config.policy, self.said)

    def hear(self, machine: Machine, labels: Mapping[str, str], annotations: Mapping[str, str]) -> list[str]:
        """Take in what a Node says now; what is wrong with it in words, told once as long as it is wrong."""
        said, faults = understood(self.said, labels, annotations)
        try:
            config = effective(self._profile, machine, said)
        except NodeConfigError as error:
            faults.append(f"labels and annotations of the node, together with its settings: {error}")
        else:
            self.saved = self.saved and (config, said) == (self.config, self.said)
            self.config, self.said = config, said
        new = [fault for fault in faults if fault not in self._told]
        self._told = set(faults)
        return new


def understood(
    before: Said, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> tuple[Said, list[str]]:
    """Everything that can be meant; for what cannot, what was said before, and why."""
    faults: list[str] = []

    def kept(
        known: tuple[str, ...], now: Mapping[str, str], old: Mapping[str, str]
    ) -> Iterator[tuple[str, str]]:
        for key in known:
            if key in now and (found := list(_faults(now, key))):
                faults.extend(found)
                yield from ((key, old[key]) for _ in range(key in old))
            elif key in now:
                yield key, now[key]

    return Said(
        dict(kept(_LABELS, labels, before.labels)), dict(kept(_ANNOTATIONS, annotations, before.annotations))
    ), faults


def _faults(now: Mapping[str, str], key: str) -> Iterator[str]:
    alone = {key: now[key]}
    read = node_labels.node_labels(alone, {}) if key in _LABELS else node_labels.node_labels({}, alone)
    return map(str, read.faults)


def effective(profile: NodeConfig, machine: Machine, said: Said) -> NodeConfig:
    """The profile as the Node's labels and annotations change it. Raises NodeConfigError."""
    settings = node_labels.node_labels(said.labels, said.annotations)
    topology = usable_topology(machine)
    pools = node_labels.pool_options(settings, KubeletSettings(), profile.pools, topology)
    config = replace(profile, policy=settings.policy or profile.policy, pools=pools)
    check(config, topology, machine)
    return config


def load(path: Path) -> tuple[Record, str]:
    """What the file says, nothing where there is none or it is damaged; and what is wrong with it.

    Raises OSError for a file that cannot be read.
    """
    try:
        found = json.loads(path.read_bytes())
        return Record(str(found["policy"]), Said(_texts(found["labels"]), _texts(found["annotations"]))), ""
    except FileNotFoundError:
        return Record(), ""
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Record(), f"{path}: not what corelane wrote ({error}): the node's labels are read anew"


def _texts(value: Any) -> dict[str, str]:
    return {str(key): str(text) for key, text in value.items()}


def save(path: Path, record: Record) -> None:
    """Replace the file. Raises OSError."""
    plain = {
        "policy": record.policy,
        "labels": dict(record.said.labels),
        "annotations": dict(record.said.annotations),
    }
    files.write_atomic(path, json.dumps(plain, indent=2).encode() + b"\n", mode=0o600)
