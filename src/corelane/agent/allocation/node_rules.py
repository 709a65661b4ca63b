"""What all allocations of a node follow: its settings, the agent's mode, and CPUs that a kubelet pinned.

Each change is fitted into the ledger; what the ledger could not keep becomes an event.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from corelane.agent.allocation import events
from corelane.agent.allocation.cpu_moves import ResourcePolicy
from corelane.agent.allocation.instructions import PublishEvent
from corelane.agent.allocation.modes import Mode, ModeName
from corelane.agent.allocation.pod_events import Outbox
from corelane.agent.allocation.records import NO_POD_OBJECT, PodCPUs
from corelane.cpuset import CPUSet, named
from corelane.node.config import NodeConfig
from corelane.node.entries import Entry
from corelane.node.invariants import Problem
from corelane.node.ledger import NodeState
from corelane.node.recovery.rebasing import rebase
from corelane.node.recovery.takeover import follow, pinned
from corelane.node.recovery.unplaced import OtherContainer, hold_others
from corelane.workload.request import PodRequest

_MOST_NAMES: Final = 8
NodeChange: TypeAlias = (
    events.KubeletStateRead | events.ModeChanged | events.ConfigChanged | events.MachineChanged
)


class NodeRules:
    """The rules in force. Each change returns the ledger that follows; `requests` are of the pods listed."""

    def __init__(self, config: NodeConfig, outbox: Outbox, policy: ResourcePolicy | None) -> None:
        self.mode: Mode | None = None
        self.policy = policy or ResourcePolicy()
        self.config = config
        self._outbox = outbox
        self._kubelet: events.KubeletStateRead | None = None
        self.others: tuple[OtherContainer, ...] = ()
        """Running containers of other instances on this machine."""

    def follow_others(self, ledger: NodeState, seen: events.OthersSeen) -> NodeState:
        """Hold the CPUs of other instances' containers; what changed becomes an event of the Node."""
        before, self.others = _instances(self.others), seen.containers
        after = _instances(self.others)
        if {(other.owner, other.cpus) for other in before} != {(other.owner, other.cpus) for other in after}:
            text = (
                others_text(after)
                or "no container of another corelane instance runs on this machine any more"
            )
            reason = "OtherInstances" if after else "OtherInstancesGone"
            self._outbox.put(PublishEvent("", reason, text, warning=bool(after)))
        return hold_others(ledger, [(other.owner, other.cpus) for other in self.holders])

    @property
    def holders(self) -> list[OtherContainer]:
        """Containers of other instances that keep their CPUs from this one."""
        return [other for other in self.others if other.kind == "container"]

    def not_exclusive(self, cpus: CPUSet, ledger: NodeState) -> str:
        """Return why CPUs may be used by what corelane does not confine; "" if it sees nothing there.

        A process beside all containers counts if it keeps off the reserved CPUs: then these are its CPUs. One
        that may use reserved CPUs, too, is the machine's.
        """
        for other in self.others:
            is_pinned = other.kind != "process" or other.cpus.isdisjoint(ledger.reserved)
            if is_pinned and not other.cpus.isdisjoint(cpus):
                where = named((other.cpus & cpus).mask)
                if other.kind == "unseen":
                    remedy = "--other-instances ignore leaves them out"
                    return f"{other.owner} cannot be seen, and may use {where}; {remedy}"
                what = {"container": "container ", "claim": "alleged container "}.get(other.kind, "")
                return f"{what}{other.title} of {other.owner} may use {where}"
        return ""

    def others_unchanged(self, ledger: NodeState, seen: events.OthersSeen) -> bool:
        """Whether nothing follows from what was seen of other instances."""
        same = seen.containers == self.others
        return same and hold_others(ledger, [(other.owner, other.cpus) for other in self.holders]) is ledger

    def may_write(self, pod: PodCPUs, mode: Mode | None = None) -> bool:
        """Whether the mode lets corelane write the cpusets of a pod's containers.

        The kubelet lists no pods for a moment after it starts, and none of the API server's while it cannot
        reach that: a pod is not the kubelet's only if it was found without a pod object for a while.
        """
        managed = pod.present or pod.unplaced is not NO_POD_OBJECT
        mode = mode or self.mode
        return mode is None or mode.may_write_cpus(kubelet_manages=managed)

    def follow(self, event: NodeChange, ledger: NodeState, requests: Sequence[PodRequest]) -> NodeState:
        """Follow what changed on the node."""
        machine = ledger.machine
        match event:
            case events.KubeletStateRead():
                return self._follow_kubelet(event, ledger, requests)
            case events.ModeChanged():
                self.mode, reason = event.mode, "ModeChanged"
                self.policy = ResourcePolicy(mems=event.mode.writes_mems, quota=event.quotas)
            case events.ConfigChanged():
                self.config, reason = event.config, "SettingsChanged"
            case events.MachineChanged():
                machine, reason = event.machine, "CPUsLost"
        policy = self.mode.policy(self.config.policy) if self.mode else self.config.policy
        ledger, problems = rebase(ledger, machine, replace(self.config, policy=policy))
        for problem in problems:
            self._outbox.put(PublishEvent(problem.uid, reason, problem.text, warning=True))
        return self._follow_kubelet(self._kubelet, ledger, requests) if self._kubelet else ledger

    def _follow_kubelet(
        self, read: events.KubeletStateRead, ledger: NodeState, requests: Iterable[PodRequest]
    ) -> NodeState:
        """Hold the CPUs that a kubelet pinned, and release those that it released."""
        self._kubelet = read
        if self.mode and not self.mode.holds_kubelet_cpus:
            return ledger
        beside = self.mode is not None and self.mode.name is ModeName.KUBELET
        after, problems = follow(ledger, read.checkpoint, requests, read.running, read.names, holds=beside)
        for node_event in takeover_events(ledger, after, problems):
            self._outbox.put(node_event)
        return after


def _instances(others: Iterable[OtherContainer]) -> list[OtherContainer]:
    """Return the containers among processes of other owners."""
    return [other for other in others if other.kind in ("container", "claim")]


def others_text(others: Iterable[OtherContainer]) -> str:
    """Return which containers of other instances run, on which CPUs, and what follows; "" without any."""
    containers = _instances(others)
    claims = [other for other in containers if other.kind == "claim"]
    sentences = []
    if held := [other for other in containers if other.kind == "container"]:
        sentences.append(
            f"containers of other corelane instances run on this machine: {_listed(held)}. Their CPUs are "
            "not allocated exclusively here, and exclusive CPUs that they may use are not confirmed; to end "
            "them: corelane down --data-dir DIRECTORY, or --instance NAME where no directory is shown"
        )
    if claims:
        sentences.append(
            f"processes of other users look like containers of corelane: {_listed(claims)}. They take no "
            "CPUs from this instance; exclusive CPUs that they may use are not confirmed"
        )
    return ". ".join(sentences)


def _listed(others: Sequence[OtherContainer]) -> str:
    titles = [f"{other.title} of {other.owner} on {named(other.cpus.mask)}" for other in others]
    more = f" and {len(titles) - _MOST_NAMES} more" if len(titles) > _MOST_NAMES else ""
    return "; ".join(titles[:_MOST_NAMES]) + more


def takeover_events(
    before: NodeState, after: NodeState, problems: Iterable[Problem]
) -> Iterator[PublishEvent]:
    """Yield the Node's events about CPUs that a kubelet pinned or released."""
    was, now = pinned(before), pinned(after)
    if added := _missing_from(was, now):
        yield _event("KubeletCPUsHeld", f"CPUs {_cpus(added)} pinned by a kubelet: {_titles(added)}")
    if released := _missing_from(now, was):
        yield _event("KubeletCPUsFreed", f"CPUs {_cpus(released)} released by a kubelet: {_titles(released)}")
    for problem in problems:
        yield _event("KubeletCPUsConflict", f"pinned by a kubelet: {problem.text}", warning=True)
    if was and not now:
        yield _event("TakeoverDone", "no CPUs are pinned by a kubelet any more: corelane allocates all CPUs")


def _event(reason: str, text: str, *, warning: bool = False) -> PublishEvent:
    return PublishEvent("", reason, text, warning)


def _missing_from(others: Iterable[Entry], entries: Iterable[Entry]) -> list[Entry]:
    keys = {(entry.key, entry.cpus) for entry in others}
    return [entry for entry in entries if entry.cpus and (entry.key, entry.cpus) not in keys]


def _cpus(entries: Iterable[Entry]) -> CPUSet:
    return CPUSet(cpu for entry in entries for cpu in entry.cpus)


def _titles(entries: list[Entry]) -> str:
    names = [f"{entry.pod.removeprefix('/')}/{entry.container}" for entry in entries]
    shown = (name if name.isprintable() else repr(name) for name in names)  # a file may contain anything
    titles = [f"{name} {entry.cpus}" for name, entry in zip(shown, entries, strict=True)]
    more = f" and {len(titles) - _MOST_NAMES} more" if len(titles) > _MOST_NAMES else ""
    return ", ".join(titles[:_MOST_NAMES]) + more
