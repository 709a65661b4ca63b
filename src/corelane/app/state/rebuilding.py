"""A valid state file for what is running: from the owners of CPUs and the node's settings, and nothing else.

Whoever runs keeps every CPU that may still be exclusive. Where some are gone or reserved by now, free ones
near by take their place. No CPU gets two owners.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from corelane.app.state.errors import RepairError
from corelane.app.state.owners import Claim
from corelane.cpuset import CPUSet, format_list, named, verb
from corelane.node import NodeState
from corelane.node.config import pick
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.view.state import Change

__all__ = ["Rebuilt", "rebuild"]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The new state, what that changes for each container, and what else has to be said."""

    checkpoint: Checkpoint
    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()


def rebuild(
    claims: Iterable[Claim], state: NodeState, old: Checkpoint | None = None, *, whole_pods: bool = True
) -> Rebuilt:
    """The state of a node (`state` is the empty one) on which these claims hold, and the difference to `old`.

    Claims come first served; without `whole_pods` only containers have CPUs, as in version 2. Raises
    RepairError when a strict reservation leaves no CPU for the shared pool.
    """
    if state.config.policy == "none":
        return _without_policy(old)
    ledger = _Ledger(state, dict(old.pods) if old else {})
    for claim in claims:
        ledger.enter(claim)
    ledger.fill_up()
    if whole_pods:
        ledger.keep_pods()
    else:
        ledger.pods.clear()
    ledger.check_pool()
    return ledger.rebuilt(old)


def _without_policy(old: Checkpoint | None) -> Rebuilt:
    changes = tuple(
        Change(uid, name, "", cpus, None, "policy none gives no container CPUs of its own")
        for uid, name, cpus in _listed(old)
    )
    return Rebuilt(Checkpoint("none"), changes)


def _listed(old: Checkpoint | None) -> list[tuple[str, str, CPUSet]]:
    entries = old.entries if old else {}
    return [(uid, name, cpus) for uid, of in entries.items() for name, cpus in of.items()]


@dataclass(slots=True)
class _Held:
    """A claim and what it has of it, as masks; `gone` can never be exclusive, `others` has another owner."""

    claim: Claim
    cpus: int
    gone: int
    others: int
    added: int = 0


@dataclass(slots=True)
class _Ledger:
    """Who has what so far. `allowed` is the mask of CPUs that may be exclusive under these settings."""

    state: NodeState
    pods: dict[str, CPUSet]
    held: dict[tuple[str, str], _Held] = field(default_factory=dict)
    dropped: dict[tuple[str, str], str] = field(default_factory=dict)
    claims: dict[tuple[str, str], Claim] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def allowed(self) -> int:
        return self.state.usable.mask & ~self.state.reserved.mask

    @property
    def free(self) -> int:
        taken = 0
        for held in self.held.values():
            taken |= held.cpus
        return self.allowed & ~taken

    def enter(self, claim: Claim) -> None:
        key = claim.uid, claim.container
        self.claims[key] = claim
        gone = claim.cpus.mask & ~self.allowed
        others = claim.cpus.mask & ~gone & self._of_others(claim)
        kept = claim.cpus.mask & ~gone & ~others
        if not kept:
            self.dropped[key] = f"{self._why(gone, others)}: left out, the kubelet picks again"
        elif kept != claim.cpus.mask and not claim.running:
            self.dropped[key] = f"does not run, and {self._why(gone, others)}: the kubelet picks again"
        else:
            self.held[key] = _Held(claim, kept, gone, others)

    def _of_others(self, claim: Claim) -> int:
        """CPUs of other pods, and of those containers of its own that it may not share with."""
        lends = claim.lends or not claim.running or claim.uid in self.pods
        mask = 0
        for held in self.held.values():
            other = held.claim
            if other.uid != claim.uid or not (lends or other.lends):
                mask |= held.cpus
        return mask

    def _why(self, gone: int, others: int) -> str:
        reserved, lost = gone & self.state.reserved.mask, gone & ~self.state.usable.mask
        said = [f"{named(reserved)} {verb(reserved)} reserved now"] if reserved else []
        said += [f"{named(lost)} {verb(lost)} not online"] if lost else []
        said += [f"{named(others)} {verb(others, 'belongs', 'belong')} to another"] if others else []
        return ", ".join(said)

    def fill_up(self) -> None:
        """Replace what running owners lost, as far as it is known how many they need."""
        added: dict[tuple[str, CPUSet], int] = {}
        for held in self.held.values():
            twin = held.claim.uid, held.claim.cpus
            missing = (held.claim.wanted or 0) - held.cpus.bit_count()
            if missing <= 0 or not (held.gone or held.others):
                continue
            if twin not in added and missing > self._spare():
                self.notes.append(
                    f"{_title(held.claim)} is left with {format_list(held.cpus)}: nothing is free"
                )
                continue
            held.added = added[twin] = added.get(twin) or self._near(held.cpus, missing)
            held.cpus |= held.added

    def _spare(self) -> int:
        """How many CPUs may be handed out: one stays in the pool where reserved ones are no part of it."""
        strict = self.state.config.options.strict_cpu_reservation
        return self.free.bit_count() - strict

    def _near(self, cpus: int, n: int) -> int:
        """N free CPUs, from the NUMA nodes of these CPUs first."""
        topology, free = self.state.topology, self.free
        valid = replace(self.state.config, exact=False)
        near = free & sum(node for node in topology.numa if node & cpus)
        taken = pick(valid, topology, near, min(n, near.bit_count()))
        return taken | pick(valid, topology, free & ~taken, n - taken.bit_count())

    def keep_pods(self) -> None:
        """Pods with CPUs as a whole keep those of which no other pod has any."""
        kept: dict[str, CPUSet] = {}
        for uid, cpus in self.pods.items():
            own = [held.cpus for held in self.held.values() if held.claim.uid == uid]
            others = [held.cpus for held in self.held.values() if held.claim.uid != uid]
            others += [found.mask for found in kept.values()]
            if own:
                mask = cpus.mask & self.allowed & ~_union(others) | _union(own)
                kept[uid] = CPUSet.from_mask(mask)
        self.pods = kept

    def default(self) -> CPUSet:
        strict = self.state.config.options.strict_cpu_reservation
        base = self.allowed if strict else self.state.usable.mask
        owned = [held.cpus for held in self.held.values()] + [cpus.mask for cpus in self.pods.values()]
        return CPUSet.from_mask(base & ~_union(owned))

    def check_pool(self) -> None:
        if not self.held or self.default():
            return
        guessed = any(held.claim.wanted is None for held in self.held.values())
        raise RepairError(
            "default cpuset cannot be empty: with strict-cpu-reservation containers have all CPUs but the "
            f"reserved ones, {self.state.reserved}: leave the option out, reserve fewer, or end a pod"
            + (" (or give --pods FILE: some may only share the pool)" if guessed else "")
        )

    def rebuilt(self, old: Checkpoint | None) -> Rebuilt:
        entries: dict[str, dict[str, CPUSet]] = {}
        for (uid, name), held in self.held.items():
            entries.setdefault(uid, {})[name] = CPUSet.from_mask(held.cpus)
        found = Checkpoint("static", self.default(), entries, self.pods)
        return Rebuilt(found, tuple(self._changes(old)), tuple(self.notes))

    def _changes(self, old: Checkpoint | None) -> list[Change]:
        before = {(uid, name): cpus for uid, name, cpus in _listed(old)}
        keys = dict.fromkeys((*before, *self.claims))
        return [self._change(key, before.get(key)) for key in keys]

    def _change(self, key: tuple[str, str], before: CPUSet | None) -> Change:
        held, claim = self.held.get(key), self.claims.get(key)
        after = CPUSet.from_mask(held.cpus) if held else None
        return Change(*key, claim.pod if claim else "", before, after, self._reason(key, before))

    def _reason(self, key: tuple[str, str], before: CPUSet | None) -> str:
        held = self.held.get(key)
        if held is None:
            return self.dropped.get(key, "is gone, or shares the pool")
        claim, said = held.claim, []
        if held.gone or held.others:
            said.append(self._why(held.gone, held.others))
        if held.added:
            said.append(f"{format_list(held.added)} in their place")
        if not claim.named:
            said.append("its name is unknown: its CPUs stay blocked")
        if not said:
            said = [_unchanged(claim, before)]
        return ", ".join(said)


def _unchanged(claim: Claim, before: CPUSet | None) -> str:
    if not claim.running:
        return "does not run now, but its pod is still there"
    return "runs there" if before == claim.cpus else f"runs on {claim.cpus}"


def _title(claim: Claim) -> str:
    return f"{claim.pod or claim.uid}/{claim.container}"


def _union(masks: Iterable[int]) -> int:
    mask = 0
    for one in masks:
        mask |= one
    return mask
