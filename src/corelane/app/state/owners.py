"""Which running containers have their CPUs alone: from their cpusets, their names and what they ask for.

In doubt a container is taken for an owner: CPUs that it may have alone are then not handed out again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from corelane.app.state.cgroups import Group
from corelane.app.state.pod_lists import Known, Name, Wanted
from corelane.cpuset import CPUSet
from corelane.node.kubelet.checkpoint import Checkpoint

__all__ = ["Claim", "Evidence", "claims"]


@dataclass(frozen=True, slots=True)
class Claim:
    """A container that has, or is to have, CPUs alone. `wanted` is None where nobody says how many."""

    uid: str
    container: str
    cpus: CPUSet
    running: bool = True
    named: bool = True
    wanted: int | None = None
    lends: bool = False
    """A plain init container's CPUs go on to its pod's others."""
    pod: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything known of a node: what runs, who that is, and what the old file says (None: nothing)."""

    groups: Sequence[Group]
    pods: Mapping[str, Known] = field(default_factory=dict)
    names: Mapping[str, Name] = field(default_factory=dict)
    needs: Mapping[str, int] = field(default_factory=dict)
    """By container id how many CPUs alone it asked for, 0 for a share, as far as the runtime tells."""
    alive: Mapping[str, str] = field(default_factory=dict)
    """UID to `namespace/name` of pods that are there, as far as the runtime tells."""
    old: Checkpoint | None = None
    trusted: bool = True
    """Whether the old file's checksum is right: else it only helps to name what runs."""
    reserved: CPUSet = field(default_factory=CPUSet)


@dataclass(frozen=True, slots=True)
class _Container:
    group: Group
    name: str
    pod: str
    wanted: Wanted | None
    """By the list of pods."""
    told: int | None
    """By the runtime, which is to be trusted less: it may not know what has changed since."""

    @property
    def needs(self) -> int | None:
        """How many CPUs it is to have alone, 0 for none; None where nobody says."""
        return self.wanted.cpus if self.wanted is not None else self.told


def claims(evidence: Evidence) -> list[Claim]:
    """Every owner: those that run, named ones first, then those that the old file has beside them."""
    evidence = _by_pod(evidence)
    containers = _named(evidence)
    shared = [one.group.cpus for one in containers if _shares(one) and one.group.cpus]
    if evidence.trusted and evidence.old and evidence.old.default:
        shared.append(evidence.old.default)
    owners = [one for one in containers if _owns(one, shared, containers, evidence)]
    running = sorted((_claim(one, evidence) for one in owners), key=lambda claim: not claim.named)
    return [*_once(running), *_beside(evidence, running, containers)]


def _by_pod(evidence: Evidence) -> Evidence:
    """With the entries of an old file of version 1, which go by container ids, under pods and names."""
    old = evidence.old
    if not old or old.version != 1:
        return evidence
    entries: dict[str, dict[str, CPUSet]] = {}
    for group in evidence.groups:
        cpus = old.entries.get("", {}).get(group.id)
        if cpus is not None:
            entries.setdefault(group.uid, {})[_name_by_id(group, evidence) or _unknown(group)] = cpus
    return replace(evidence, old=replace(old, entries=entries, version=2))


def _unknown(group: Group) -> str:
    return f"unknown-{group.id[:12]}"


def _once(running: list[Claim]) -> Iterator[Claim]:
    """Two groups of one container, an old one and its successor, are one claim to the CPUs of both."""
    merged: dict[tuple[str, str], Claim] = {}
    for claim in running:
        before = merged.get((claim.uid, claim.container), claim)
        merged[claim.uid, claim.container] = replace(before, cpus=before.cpus | claim.cpus)
    yield from merged.values()


def _named(evidence: Evidence) -> list[_Container]:
    """Every group with its name: by id, by the CPUs in the old file, or as the only one left that fits."""
    names = {group.id: _name_by_id(group, evidence) for group in evidence.groups}
    taken = {(group.uid, names[group.id]) for group in evidence.groups if names[group.id]}
    for group in evidence.groups:
        if names[group.id] or not _constrained(group):
            continue
        candidates = [name for name in _fitting(group, evidence) if (group.uid, name) not in taken]
        alike = [
            other
            for other in evidence.groups
            if other.uid == group.uid and not names[other.id] and len(other.cpus) == len(group.cpus)
        ]
        exact = [name for name in candidates if _recorded(evidence, group.uid, name) == group.cpus]
        if exact or (len(candidates) == 1 and len(alike) == 1):
            names[group.id] = (exact or candidates)[0]
            taken.add((group.uid, names[group.id]))
    return [_container(group, names[group.id], evidence) for group in evidence.groups]


def _name_by_id(group: Group, evidence: Evidence) -> str:
    pod, logged = evidence.pods.get(group.uid), evidence.names.get(group.id)
    return (pod.ids.get(group.id, "") if pod else "") or (logged.container if logged else "")


def _fitting(group: Group, evidence: Evidence) -> list[str]:
    """Containers of the pod that have, by the list or the old file, as many CPUs alone as the group has."""
    pod = evidence.pods.get(group.uid)
    if pod:
        fitting = [name for name, wanted in pod.containers.items() if wanted.cpus == len(group.cpus)]
        return sorted(fitting, key=lambda name: pod.containers[name].lends)
    old = evidence.old.entries.get(group.uid, {}) if evidence.old else {}
    return [name for name, cpus in old.items() if cpus == group.cpus]


def _recorded(evidence: Evidence, uid: str, name: str) -> CPUSet | None:
    return evidence.old.entries.get(uid, {}).get(name) if evidence.old else None


def _container(group: Group, name: str, evidence: Evidence) -> _Container:
    pod, logged = evidence.pods.get(group.uid), evidence.names.get(group.id)
    title = pod.title if pod else f"{logged.namespace}/{logged.pod}" if logged else ""
    wanted = pod.containers.get(name, Wanted(0)) if pod and name else None
    return _Container(group, name, title, wanted, evidence.needs.get(group.id))


def _constrained(group: Group) -> bool:
    """Whether it has less than its pod might use."""
    return bool(group.cpus) and not (group.pod_cpus and group.pod_cpus <= group.cpus)


def _shares(one: _Container) -> bool:
    """Whether it has no CPU alone: the pool's cpuset may be seen on it."""
    return not one.needs if one.needs is not None else bool(one.group.qos)


def _certainly_shares(one: _Container) -> bool:
    """Whether that is so even where the old file says otherwise."""
    return not one.wanted.cpus if one.wanted is not None else bool(one.group.qos)


def _owns(one: _Container, shared: list[CPUSet], everybody: list[_Container], evidence: Evidence) -> bool:
    group = one.group
    if _is_recorded(one, evidence):
        return True
    if not _constrained(group) or _shares(one):
        return False
    if one.needs == len(group.cpus):
        return True
    if any(pool <= group.cpus for pool in shared) or group.cpus <= evidence.reserved:
        return False
    return one.needs is not None or not any(
        other.group.uid != group.uid and other.group.cpus == group.cpus for other in everybody
    )


def _is_recorded(one: _Container, evidence: Evidence) -> bool:
    """Whether the old file gives it just the CPUs that it runs on, and nothing speaks against that."""
    pod = evidence.pods.get(one.group.uid)
    if (
        not evidence.trusted
        or (pod and one.name not in pod.containers)
        or (_certainly_shares(one) and not _is_part(one, evidence))
    ):
        return False
    return bool(one.group.cpus) and _recorded(evidence, one.group.uid, one.name) == one.group.cpus


def _is_part(one: _Container, evidence: Evidence) -> bool:
    """Whether its pod has CPUs as a whole, of which every container has some (pod-level resources)."""
    return bool(evidence.old and one.group.uid in evidence.old.pods)


def _claim(one: _Container, evidence: Evidence) -> Claim:
    group, wanted = one.group, one.wanted
    recorded = len(group.cpus) if _is_recorded(one, evidence) else None
    needs = one.needs if wanted else one.needs or recorded
    return Claim(
        uid=group.uid,
        container=one.name or _unknown(group),
        cpus=group.cpus,
        named=bool(one.name),
        wanted=needs or None,
        lends=wanted.lends if wanted else False,
        pod=one.pod,
    )


def _beside(evidence: Evidence, running: list[Claim], containers: list[_Container]) -> Iterator[Claim]:
    """What the old file says of containers that do not run just now, but whose pod is still there.

    One with the very CPUs of a running sibling may be that one: an init container and its heir look alike.
    """
    if not evidence.old or not evidence.trusted:
        return
    present = dict.fromkeys((one.group.uid for one in containers), "") | dict(evidence.alive)
    present |= {one.group.uid: one.pod for one in containers if one.pod}
    have = {(claim.uid, claim.container) for claim in running}
    sets = {(claim.uid, claim.cpus) for claim in running}
    for uid, entries in evidence.old.entries.items():
        pod = evidence.pods.get(uid)
        if pod.ended if pod else uid not in present:
            continue
        for name, cpus in entries.items():
            wanted = pod.containers.get(name) if pod else Wanted(len(cpus))
            if (uid, name) in have or wanted is None or not (wanted.cpus or uid in evidence.old.pods):
                continue
            title = pod.title if pod else present.get(uid, "")
            twin = (uid, cpus) in sets
            yield Claim(uid, name, cpus, twin, True, wanted.cpus or None, wanted.lends or twin, title)
