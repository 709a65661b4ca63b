"""The kubelet's state files: read despite a wrong checksum, converted, rebuilt from running containers.

Rebuilding uses the owners of CPUs and the node's settings only. A running owner keeps every CPU that may
still be exclusive. CPUs that have become reserved or offline are replaced by free ones, of the same NUMA node
if possible. No CPU gets two owners.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar, cast

from corelane.cpuset import CPUSet, format_list
from corelane.node.config import pick
from corelane.node.kubelet import checkpoint, memory_checkpoint, statefile
from corelane.node.kubelet.checkpoint import Checkpoint, Version
from corelane.node.kubelet.memory_checkpoint import MemoryCheckpoint
from corelane.node.kubelet.statefile import CheckpointError
from corelane.node.ledger import NodeState
from corelane.node.recovery.cpu_owners import CPUOwner
from corelane.reasons import Code, Reason


class RepairError(ValueError):
    """No valid state file can hold the running containers under these settings; says why, and a remedy."""


@dataclass(frozen=True, slots=True)
class EntryChange:
    """A repair of one container's CPUs; None stands for no entry."""

    uid: str
    pod: str
    """`namespace/name` where it is known."""
    container: str
    before: CPUSet | None
    after: CPUSet | None
    reasons: tuple[Reason, ...]

    @property
    def kind(self) -> str:
        if self.before is None and self.after is None:
            return "left out"
        if self.before == self.after:
            return "kept"
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "changed"


@dataclass(frozen=True, slots=True)
class RebuiltState:
    """The rebuilt state, what changes for each container, and notes."""

    checkpoint: Checkpoint
    changes: tuple[EntryChange, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StateDifference:
    """A repair: the file as it is (None: missing or unreadable) and as it will be."""

    file: str
    before: Checkpoint | None
    after: Checkpoint
    version: int
    """The version that is written."""
    changes: tuple[EntryChange, ...]
    notes: tuple[str, ...] = ()
    needed: bool = True
    """False where the file already is what a repair would write."""


def rebuild(
    owners: Iterable[CPUOwner], state: NodeState, old: Checkpoint | None = None, *, whole_pods: bool = True
) -> RebuiltState:
    """Return the state of a node (`state` is the empty one) with these owners, and the difference to `old`.

    Earlier owners win over later ones. Without `whole_pods` only containers have CPUs, as in version 2.
    Raises RepairError where a strict reservation leaves no CPU for the shared pool.
    """
    if state.config.policy == "none":
        why = (Reason(Code.ENTRY_POLICY_NONE),)
        gone = [EntryChange(uid, "", name, cpus, None, why) for (uid, name), cpus in _entries(old).items()]
        return RebuiltState(Checkpoint("none"), tuple(gone))
    draft = _Draft(state, dict(old.pods) if old else {})
    for owner in owners:
        draft.enter(owner)
    draft.replace_lost_cpus()
    if whole_pods:
        draft.keep_pods()
    else:
        draft.pods.clear()
    draft.check_pool()
    return draft.rebuilt(old)


def _entries(old: Checkpoint | None) -> dict[tuple[str, str], CPUSet]:
    entries = old.entries if old else {}
    return {(uid, name): cpus for uid, of in entries.items() for name, cpus in of.items()}


@dataclass(slots=True)
class _Assigned:
    """An owner and its CPUs, as masks; `lost` can never be exclusive, `others` has another owner."""

    owner: CPUOwner
    cpus: int
    lost: int
    others: int
    added: int = 0


@dataclass(slots=True)
class _Draft:
    """The state under construction. `allowed` is the mask of CPUs that these settings let be exclusive."""

    state: NodeState
    pods: dict[str, CPUSet]
    assigned: dict[tuple[str, str], _Assigned] = field(default_factory=dict)
    dropped: dict[tuple[str, str], Reason] = field(default_factory=dict)
    owners: dict[tuple[str, str], CPUOwner] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def strict(self) -> bool:
        """Whether reserved CPUs are not part of the shared pool."""
        return self.state.config.options.strict_cpu_reservation

    @property
    def allowed(self) -> int:
        return self.state.usable.mask & ~self.state.reserved.mask

    @property
    def free(self) -> int:
        return self.allowed & ~_union(assigned.cpus for assigned in self.assigned.values())

    def enter(self, owner: CPUOwner) -> None:
        key = owner.uid, owner.container
        self.owners[key] = owner
        lost = owner.cpus.mask & ~self.allowed
        others = owner.cpus.mask & ~lost & self._of_others(owner)
        remaining = owner.cpus.mask & ~lost & ~others
        if not remaining or (remaining != owner.cpus.mask and not owner.running):
            running = owner.running or not remaining
            self.dropped[key] = Reason(Code.ENTRY_DROPPED, (*self._loss(lost, others), running))
        else:
            self.assigned[key] = _Assigned(owner, remaining, lost, others)

    def _of_others(self, owner: CPUOwner) -> int:
        """CPUs of other pods, and of containers of its pod with which it cannot share."""
        reusable = owner.reusable or not owner.running or owner.uid in self.pods
        return _union(
            assigned.cpus
            for assigned in self.assigned.values()
            if assigned.owner.uid != owner.uid or not (reusable or assigned.owner.reusable)
        )

    def _loss(self, lost: int, others: int) -> tuple[int, int, int]:
        """Lost CPUs that are reserved, offline, or another owner's."""
        return lost & self.state.reserved.mask, lost & ~self.state.usable.mask, others

    def replace_lost_cpus(self) -> None:
        """Give running owners free CPUs for those they lost, where their request is known."""
        added: dict[tuple[str, CPUSet], int] = {}
        for assigned in self.assigned.values():
            owner = assigned.owner
            missing = (owner.request or 0) - assigned.cpus.bit_count()
            if missing <= 0 or not (assigned.lost or assigned.others):
                continue
            twin = owner.uid, owner.cpus
            if twin not in added and missing > self.free.bit_count() - self.strict:
                self.notes.append(
                    f"{owner.pod or owner.uid}/{owner.container} keeps only {format_list(assigned.cpus)}: "
                    f"{owner.request} CPUs requested, no other CPU is free"
                )
                continue
            assigned.added = added[twin] = added.get(twin) or self._nearest(assigned.cpus, missing)
            assigned.cpus |= assigned.added

    def _nearest(self, cpus: int, n: int) -> int:
        """N free CPUs, from the NUMA nodes of these CPUs first."""
        topology, free = self.state.topology, self.free
        config = replace(self.state.config, exact=False)
        near = free & sum(node for node in topology.numa if node & cpus)
        picked = pick(config, topology, near, min(n, near.bit_count()))
        return picked | pick(config, topology, free & ~picked, n - picked.bit_count())

    def keep_pods(self) -> None:
        """Keep the CPUs of pods as a whole, except those of which another pod has any."""
        cpus_by_container: dict[str, CPUSet] = {}
        for uid, cpus in self.pods.items():
            own = _union(assigned.cpus for assigned in self.assigned.values() if assigned.owner.uid == uid)
            others = _union(assigned.cpus for assigned in self.assigned.values() if assigned.owner.uid != uid)
            others |= _union(pod.mask for pod in cpus_by_container.values())
            if own:
                cpus_by_container[uid] = CPUSet.from_mask(cpus.mask & self.allowed & ~others | own)
        self.pods = cpus_by_container

    def shared_pool(self) -> CPUSet:
        base = self.allowed if self.strict else self.state.usable.mask
        owned = _union(assigned.cpus for assigned in self.assigned.values())
        return CPUSet.from_mask(base & ~owned & ~_union(cpus.mask for cpus in self.pods.values()))

    def check_pool(self) -> None:
        if not self.assigned or self.shared_pool():
            return
        guessed = any(assigned.owner.request is None for assigned in self.assigned.values())
        raise RepairError(
            "default cpuset cannot be empty: under strict-cpu-reservation containers have all CPUs "
            f"except the reserved ones ({self.state.reserved}); remove the option, reserve fewer CPUs, "
            "or end a pod" + ("; --pods FILE may show that some run in the shared pool" if guessed else "")
        )

    def rebuilt(self, old: Checkpoint | None) -> RebuiltState:
        entries: dict[str, dict[str, CPUSet]] = {}
        for (uid, name), assigned in self.assigned.items():
            entries.setdefault(uid, {})[name] = CPUSet.from_mask(assigned.cpus)
        before = _entries(old)
        changes = [self._change(key, before.get(key)) for key in dict.fromkeys((*before, *self.owners))]
        checkpoint = Checkpoint("static", self.shared_pool(), entries, self.pods)
        return RebuiltState(checkpoint, tuple(changes), tuple(self.notes))

    def _change(self, key: tuple[str, str], before: CPUSet | None) -> EntryChange:
        assigned, owner = self.assigned.get(key), self.owners.get(key)
        after = CPUSet.from_mask(assigned.cpus) if assigned else None
        title, reasons = owner.pod if owner else "", tuple(self._reasons(key, before))
        return EntryChange(key[0], title, key[1], before, after, reasons)

    def _reasons(self, key: tuple[str, str], before: CPUSet | None) -> Iterator[Reason]:
        assigned = self.assigned.get(key)
        if assigned is None:
            yield self.dropped.get(key, Reason(Code.ENTRY_NOT_EXCLUSIVE))
            return
        owner, lost = assigned.owner, assigned.lost or assigned.others
        if lost:
            yield Reason(Code.ENTRY_LOST_CPUS, self._loss(assigned.lost, assigned.others))
        if assigned.added:
            yield Reason(Code.ENTRY_REPLACED_CPUS, (assigned.added,))
        if not owner.named:
            yield Reason(Code.ENTRY_WITHOUT_NAME)
        elif not owner.running and not lost:
            yield Reason(Code.ENTRY_NOT_RUNNING)
        elif not lost:
            same = before == owner.cpus
            yield Reason(Code.ENTRY_UNCHANGED) if same else Reason(Code.ENTRY_RUNNING, (str(owner.cpus),))


def _union(masks: Iterable[int]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union


_Content = TypeVar("_Content", Checkpoint, MemoryCheckpoint)


@dataclass(frozen=True, slots=True)
class StateFile(Generic[_Content]):
    """A state file as it was read. `fault` is "" where the checksum fits the content."""

    path: str
    content: bytes
    checkpoint: _Content
    checksum: int | None
    """As the file has it; None where it has none, which versions 1 and 2 allow."""
    fault: str = ""
    whole: bool = False
    """Whether the fault is only that something follows a state whose checksum is right."""


def decode(path: str, content: bytes) -> StateFile[Checkpoint]:
    """Return the content of a `cpu_manager_state`, with a `fault` where only its checksum or end is wrong.

    Raises CheckpointError for anything else that is wrong.
    """
    stored = _checksum(content)
    try:
        return StateFile(path, content, checkpoint.decode(content), stored)
    except CheckpointError as error:
        fault = error
    if first := statefile.whole_object(content):
        with suppress(CheckpointError):
            file = decode(path, first)
            return replace(file, content=content, fault=str(fault), whole=not file.fault)
    with suppress(CheckpointError):
        if _members(content):
            return StateFile(path, content, _unverified(content), stored, str(fault))
    raise fault


def decode_memory(path: str, content: bytes) -> StateFile[MemoryCheckpoint]:
    """Return the content of a `memory_manager_state`, likewise."""
    stored = _checksum(content)
    try:
        return StateFile(path, content, memory_checkpoint.decode(content), stored)
    except CheckpointError as error:
        with suppress(CheckpointError):
            unverified = memory_checkpoint.decode(content, verify=False)
            return StateFile(path, content, unverified, stored, str(error))
        raise


def is_memory(name: str, content: bytes) -> bool:
    """Whether a file is a memory manager's: by its content, or by its name where it has no JSON object."""
    if memory_checkpoint.is_memory(content):
        return True
    if not name.startswith("memory_manager_state"):
        return False
    try:
        return not isinstance(json.loads(content), dict)
    except (ValueError, RecursionError):
        return True


def _members(content: bytes) -> dict[str, Any]:
    """The outermost object's members by their names in lower case, as Go matches them."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return {key.casefold(): member for key, member in value.items()} if isinstance(value, dict) else {}


def _checksum(content: bytes) -> int | None:
    """The checksum in a file, of its payload where there is one; None where the file has none."""
    members = _members(content)
    stored = members.get("datachecksum") or members.get("checksum")
    return stored if isinstance(stored, int) and not isinstance(stored, bool) else None


def _unverified(content: bytes) -> Checkpoint:
    """The content without its checksum's verification. Raises CheckpointError where more is wrong."""
    members = _members(content)
    if isinstance(members.get("data"), str):
        return replace(_without_checksum(_members(members["data"].encode())), version=4)
    return _without_checksum(members)


def _without_checksum(members: dict[str, Any]) -> Checkpoint:
    """Decode as version 2 without a checksum, and add the pod-level entries that this leaves out."""
    plain = {key: value for key, value in members.items() if key not in ("checksum", "datachecksum", "data")}
    decoded = checkpoint.decode(json.dumps(plain).encode())
    pods = {
        uid: CPUSet.parse(next((text for key, text in value.items() if key.casefold() == "cpuset"), ""))
        for uid, value in (members.get("podentries") or {}).items()
    }
    return replace(decoded, pods=pods, version=3) if pods else decoded


def read_by(file: StateFile[Checkpoint], minor: int) -> Checkpoint:
    """Return what a kubelet 1.`minor` reads in the file: before 1.37 no payload. Raises CheckpointError."""
    return checkpoint.decode(file.content, payload=minor >= 37)


def convert(file: StateFile[Checkpoint], version: int) -> bytes:
    """Return the file's content in another version. Raises CheckpointError where that is impossible."""
    if file.fault:
        raise CheckpointError(file.fault)
    if file.checkpoint.version == 1:
        raise CheckpointError(
            "version: 1 has container ids instead of pods and names; rewrite the file with "
            "`corelane state repair --pods FILE`"
        )
    content = file.checkpoint
    if version == 2:
        content = replace(content, default=content.default | _of_pods_only(content), pods={})
    return checkpoint.encode(content, cast("Version", version))


def _of_pods_only(content: Checkpoint) -> CPUSet:
    """CPUs of pods as a whole that no container of them has: version 2 cannot hold them."""
    mask = 0
    for uid, cpus in content.pods.items():
        mask |= cpus.mask
        for own in content.entries.get(uid, {}).values():
            mask &= ~own.mask
    return CPUSet.from_mask(mask)
