"""The kubelet's `cpu_manager_state`: versions 1 to 4, bytes in and out, with their exact checksums.

Upstream: `pkg/kubelet/cm/cpumanager/state` (v1.36; version 4 from 1.37). A checksum covers the decoded values
and not the bytes: it is FNV-1a over the structure as Go's spew library prints it, its own checksum at 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from corelane.cpuset import CPUSet, CPUSetError, quoted
from corelane.node.kubelet.statefile import (
    CheckpointError,
    MalformedError,
    Pairs,
    StateFields,
    fnv1a,
    go_json,
    parse,
    payload_checksum,
)
from corelane.node.ledger import NodeState

__all__ = ["CheckpointError"]

Version: TypeAlias = Literal[1, 2, 3, 4]
"""1: up to 1.17, keyed by container id; 2: 1.18 to 1.36; 3: 1.36 with pod-level managers; 4: from 1.37."""

_WHAT_TO_DO = "the kubelet will not start with it: repair the file, or drain the node and remove it"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The kubelet's record of a node's CPUs."""

    policy: str
    default: CPUSet = field(default_factory=CPUSet)
    """The shared pool; empty under policy none."""
    entries: Mapping[str, Mapping[str, CPUSet]] = field(default_factory=dict)
    """Pod UID to container name to CPUs. In version 1 there is one "" for the pod, and container ids."""
    pods: Mapping[str, CPUSet] = field(default_factory=dict)
    """Pod UID to the CPUs of a pod-level request, in versions 3 and 4."""
    version: Version = 2
    """The version that it was read from."""


def from_state(state: NodeState) -> Checkpoint:
    """Return the checkpoint of a kubelet that had made the same decisions."""
    if state.config.policy == "none":
        return Checkpoint("none")
    entries: dict[str, dict[str, CPUSet]] = {}
    for (uid, container), entry in state.entries.items():
        if entry.exclusive:
            entries.setdefault(uid, {})[container] = entry.cpus
    return Checkpoint("static", state.shared_pool, entries)


def encode(checkpoint: Checkpoint, version: Version = 2) -> bytes:
    """The file as a kubelet of that version writes it: one line of compact JSON, without newline.

    Version 2 leaves out `pods`. Raises CheckpointError between version 1 and the others, since container ids
    cannot be told from pods.
    """
    if (version == 1) != (checkpoint.version == 1):
        raise CheckpointError(
            f"version: {checkpoint.version} cannot be written as {version}: "
            "version 1 names containers by id, the others by pod"
        )
    raw = _Raw.of(checkpoint)
    fields: dict[str, Any] = {"policyName": raw.policy, "defaultCpuSet": raw.default}
    if raw.entries:
        fields["entries"] = raw.entries[""] if version == 1 else raw.entries
    if version == 3 and raw.pods:
        fields["podEntries"] = raw.pod_entries()
    fields["checksum"] = raw.checksum(2 if version == 4 else version)
    if version == 4:
        data = raw.payload()
        fields |= {"data": data, "dataChecksum": payload_checksum(data)}
    return go_json(fields).encode()


def decode(content: bytes, *, payload: bool = True) -> Checkpoint:
    """The checkpoint, of whatever version it is, if its checksum is right or, as for the kubelet, absent.

    Without `payload` as releases before 1.37 read it, to which version 4 is 2. Raises CheckpointError.
    """
    try:
        fields = StateFields(parse(content, "the file"))
        if payload and (fields.text("data") or fields.number("dataChecksum")):
            data = fields.text("data")
            if payload_checksum(data) != fields.number("dataChecksum"):
                raise MalformedError("dataChecksum: checkpoint is corrupted")
            return _read(StateFields(parse(data.encode(), "data"))).parsed(4)
        raw = _read(fields)
        checksum = fields.number("checksum")
        if raw.flat:
            if checksum in (0, raw.checksum(1)):
                return raw.parsed(1)
        elif not raw.entries and checksum == raw.checksum(1):
            return raw.parsed(1)
        elif checksum and checksum == raw.checksum(3):
            return raw.parsed(3)
        elif checksum in (0, raw.checksum(2), raw.checksum(2, "CPUManagerCheckpointV2")):
            return replace(raw, pods={}).parsed(2)
        raise MalformedError("checksum: checkpoint is corrupted")
    except MalformedError as error:
        raise CheckpointError(f"{error}; {_WHAT_TO_DO}") from None


_Texts: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Raw:
    """A checkpoint with its CPU sets as the texts that checksums cover; None is Go's nil map."""

    policy: str
    default: str
    entries: Mapping[str, _Texts | None] | None
    pods: Mapping[str, CPUSet]
    flat: bool
    """Of version 1: what would be the pods' maps is one, under ""."""

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> "_Raw":
        entries = {
            uid: {name: str(cpus) for name, cpus in containers.items()}
            for uid, containers in checkpoint.entries.items()
        }
        default = str(checkpoint.default)
        return cls(checkpoint.policy, default, entries, checkpoint.pods, checkpoint.version == 1)

    def parsed(self, version: Version) -> Checkpoint:
        try:
            default = CPUSet.parse(self.default)
        except CPUSetError as error:
            raise MalformedError(
                f"defaultCpuSet: could not parse default cpu set {quoted(self.default)}: {error}"
            ) from None
        entries = {
            uid: {name: _cpus(text, uid, name) for name, text in (containers or {}).items()}
            for uid, containers in (self.entries or {}).items()
        }
        return Checkpoint(self.policy, default, entries, dict(self.pods), version)

    def pod_entries(self) -> dict[str, dict[str, str]]:
        return {uid: {"cpuSet": str(cpus)} for uid, cpus in self.pods.items()}

    def payload(self) -> str:
        """Version 4's `data`."""
        fields: dict[str, Any] = {"policyName": self.policy, "defaultCpuSet": self.default}
        if self.entries:
            fields["entries"] = self.entries
        if self.pods:
            fields["podEntries"] = self.pod_entries()
        return go_json(fields)

    def checksum(self, version: Version, name: str = "CPUManagerCheckpoint") -> int:
        """FNV-1a, 32 bit, of what spew prints."""
        if version == 1:
            entries = "(map[string]string)" + _spew(
                None if self.entries is None else self.entries.get("", {})
            )
        else:
            entries = "(map[string]map[string]string)" + _spew(self.entries)
        if version == 3:
            entries += f" PodEntries:(state.PodCPUAssignments){_spew(self.pods)}"
        return fnv1a(
            f"(*state.{name}){{PolicyName:(string){self.policy} DefaultCPUSet:(string){self.default} "
            f"Entries:{entries} Checksum:(checksum.Checksum)0}}"
        )


def _spew(value: Mapping[str, Any] | str | CPUSet | None) -> str:
    """A value inside a map, as spew prints it with sorted keys and without addresses."""
    if value is None:
        return "<nil>"
    if isinstance(value, str):
        return value
    if isinstance(value, CPUSet):
        elements = " ".join(f"{cpu}:{{}}" for cpu in value)
        return f"{{CPUSet:(cpuset.CPUSet){{elems:(map[int]struct {{}})map[{elements}]}}}}"
    return f"map[{' '.join(f'{key}:{_spew(value[key])}' for key in sorted(value))}]"


def _read(fields: StateFields) -> _Raw:
    entries = fields.members("entries")
    flat = bool(entries) and all(isinstance(value, str) for value in (entries or {}).values())
    if flat:
        entries = {"": Pairs((entries or {}).items())}
    pods = {uid: _pod_cpus(uid, value) for uid, value in (fields.members("podEntries") or {}).items()}
    nested = None if entries is None else {uid: _texts(uid, value) for uid, value in entries.items()}
    return _Raw(fields.text("policyName"), fields.text("defaultCpuSet"), nested, pods, flat)


def _texts(uid: str, value: Any) -> dict[str, str] | None:
    if not isinstance(value, Pairs | None):
        raise MalformedError(f"entries of pod {uid!r}: is {type(value).__name__}, not an object")
    for name, text in value or ():
        if not isinstance(text, str):
            raise MalformedError(
                f"entries of pod {uid!r}, container {name!r}: is {type(text).__name__}, not a string"
            )
    return None if value is None else dict(value)


def _pod_cpus(uid: str, value: Any) -> CPUSet:
    if not isinstance(value, Pairs):
        raise MalformedError(f"podEntries of pod {uid!r}: is {type(value).__name__}, not an object")
    text = StateFields(value).text("cpuSet")
    try:
        return CPUSet.parse(text)
    except CPUSetError as error:
        raise MalformedError(
            f"podEntries of pod {uid!r}: could not parse cpuset {quoted(text)}: {error}"
        ) from None


def _cpus(text: str, uid: str, container: str) -> CPUSet:
    try:
        return CPUSet.parse(text)
    except CPUSetError as error:
        raise MalformedError(
            f"entries: could not parse cpuset {quoted(text)} for container {quoted(container)} "
            f"in pod {quoted(uid)}: {error}"
        ) from None
