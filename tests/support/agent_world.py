"""A small API server, kernel and disk for the agent's state machine; they survive its crashes.

Instructions are carried out one at a time, in any order that the shell could choose; a crash drops the
core, what was ordered and what was not told yet. The kernel's own view is checked after every step.
"""

from dataclasses import dataclass, field, replace
from itertools import combinations

from corelane.agent.allocation import events
from corelane.agent.allocation.cpu_moves import memory_nodes
from corelane.agent.allocation.events import AgentEvent, ContainerRun
from corelane.agent.allocation.instructions import (
    Annotate,
    Observe,
    Pin,
    PublishEvent,
    PublishTopology,
    SaveLedger,
)
from corelane.agent.allocation.records import NO_CPUS
from corelane.cpuset import CPUSet
from corelane.embedded.pods import records
from corelane.embedded.pods.lifecycle import Lifecycle
from corelane.embedded.pods.other_instances import SharedMachineAllocation
from corelane.embedded.pods.records import (
    ContainerPlan,
    PodPlan,
    PodReporter,
    RestartPolicy,
    Started,
    StartFailed,
    StopFailed,
)
from corelane.kernel import cfs
from corelane.machine import spec
from corelane.node import codec
from corelane.node.config import NodeConfig, PoolOptions
from corelane.node.entries import Sharing
from corelane.node.invariants import validate
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.node.ledger import new
from corelane.node.pools.classes import pod_class
from corelane.node.recovery.rebasing import rebase
from corelane.runtime.base import KEEP, ObservedResources
from corelane.workload import PlacementSpec
from corelane.workload.request import ContainerKind, ContainerRequest, PodRequest, QOSClass

APP, INIT, SIDECAR = ContainerKind.APP, ContainerKind.INIT, ContainerKind.SIDECAR


def plan(
    uid: str,
    *containers: tuple[str, ContainerKind, int],
    policy: RestartPolicy = RestartPolicy.ALWAYS,
    qos: QOSClass = QOSClass.GUARANTEED,
    **members: object,
) -> PodPlan:
    """A pod of containers given as (name, kind, milliCPU)."""
    requests = tuple(ContainerRequest(name, kind, milli, milli, 1, 1) for name, kind, milli in containers)
    planned = tuple(ContainerPlan(name, kind, "image") for name, kind, _ in containers)
    placement_spec = members.pop("placement_spec", PlacementSpec())
    request = PodRequest(
        uid,
        "default",
        f"pod-{uid}",
        qos,
        requests,
        proposal=members.pop("proposal", {}),
        placement_spec=placement_spec,
    )
    return PodPlan(request, planned, restart_policy=policy, **members)


@dataclass(slots=True)
class Process:
    id: str
    uid: str
    container: str
    attempt: int
    cpus: CPUSet
    sharing: Sharing
    common: bool = False
    live: bool = True
    escaped: bool = False
    displaced: bool = False
    """Not on the CPUs that it is allocated since the ledger was lost."""
    returning: bool = False
    """Back from everywhere, it may find on its CPUs who has been there too, and is about to leave."""
    exit_code: int = 0
    stopping: bool = False
    mems: CPUSet = NO_CPUS
    quota_us: int | None = None

    @property
    def resources(self) -> ObservedResources | None:
        if not self.live:
            return None
        return ObservedResources(cpus=self.cpus, mems=self.mems, quota_us=self.quota_us, cgroup=self.id)


@dataclass
class World:
    cpus: int = 6
    reserved: int = 1
    spec: str = ""
    pools: PoolOptions | None = None
    kubelet: Checkpoint | None = None
    """What a kubelet beside the agent has pinned."""
    reporter: PodReporter = field(default_factory=PodReporter)
    at: float = 1_000_000.0
    now: float = 5_000.0
    api: dict[str, PodPlan] = field(default_factory=dict)
    statuses: dict[str, dict] = field(default_factory=dict)
    processes: dict[str, Process] = field(default_factory=dict)
    pending: list = field(default_factory=list)
    inbox: list = field(default_factory=list)
    told: list = field(default_factory=list)
    annotated: dict = field(default_factory=dict)
    ran: dict = field(default_factory=dict)
    failing: set = field(default_factory=set)
    undecodable: set = field(default_factory=set)
    """Pods whose object the agent cannot decode when it starts."""
    lost: bool = False
    unwritable: bool = False
    """The ledger cannot be written: what changes containers waits, everything else goes on."""

    def __post_init__(self) -> None:
        self.machine = spec.parse_spec(self.spec or f"core:{self.cpus} smt:1")
        self.config = NodeConfig(reserved_count=self.reserved)
        if self.pools is not None:
            self.config = replace(self.config, policy="pools", pools=self.pools)
        self.disk = codec.encode(new(self.machine, self.config))
        self.boot()

    def times(self) -> dict[str, float]:
        return {"at": self.at, "now": self.now}

    # -- the agent comes and goes

    def boot(self) -> None:
        ledger, problems = rebase(codec.decode(self.disk, self.machine, self.config), self.machine)
        assert {problem.code for problem in problems} <= {"reserved"}
        allocation = SharedMachineAllocation(
            ledger, reporter=self.reporter, validate=True, follows_kubelet=self.kubelet is not None
        )
        self.core = Lifecycle(allocation, reporter=self.reporter)
        self.pending, self.inbox = [], []
        if self.kubelet is not None:
            self.feed(events.KubeletStateRead(checkpoint=self.kubelet, **self.times()))
        runs = tuple(self.run_of(process) for process in self.processes.values())
        self.feed(events.ContainersListed(runs=runs, **self.times()))
        for uid in self.api:
            if uid in self.undecodable:
                self.feed(events.PodUndecodable(uid=uid, **self.times()))
            else:
                self.feed(events.PodSeen(pod=self.as_listed(uid), **self.times()))
        self.feed(events.PodsListed(**self.times()))
        if self.lost:
            for process in self.processes.values():
                process.displaced = not self.is_in_place(process)

    def lose_ledger(self) -> None:
        self.disk = codec.encode(new(self.machine, self.config))
        self.lost = True
        self.boot()

    def is_in_place(self, process: Process) -> bool:
        entry = self.core.ledger.entries.get((process.uid, process.container))
        return entry is not None and process.cpus <= self.core.ledger.runs_on(entry)

    def set_kubelet_state(self, file: Checkpoint) -> None:
        self.kubelet = file
        self.inbox.append(events.KubeletStateRead(checkpoint=file, **self.times()))

    def as_listed(self, uid: str) -> PodPlan:
        ended = self.statuses.get(uid, {}).get("phase") in ("Succeeded", "Failed")
        return replace(self.api[uid], ended=ended)

    def run_of(self, process: Process) -> ContainerRun:
        return ContainerRun(
            id=process.id,
            uid=process.uid,
            container=process.container,
            attempt=process.attempt,
            live=process.live,
            allowed=process.cpus if process.live else CPUSet(),
            resources=process.resources,
            started_at=self.at,
            finished_at=self.at,
            exit_code=process.exit_code,
        )

    def feed(self, event: AgentEvent) -> None:
        self.pending += self.core.handle(event)
        assert validate(self.core.ledger) == []

    # -- what users and processes do

    def add(self, pod: PodPlan) -> None:
        self.api[pod.uid] = replace(pod, created_at=self.at)
        self.inbox.append(events.PodSeen(pod=self.api[pod.uid], **self.times()))

    def delete(self, uid: str, grace: float = 30.0) -> None:
        if self.api[uid].deletion_grace is None:
            self.api[uid] = replace(self.api[uid], deletion_grace=grace)
            self.inbox.append(events.PodSeen(pod=self.as_listed(uid), **self.times()))

    def vanish(self, uid: str) -> None:
        del self.api[uid]
        self.inbox.append(events.PodGone(uid=uid, **self.times()))

    def exit(self, process: Process, code: int, reason: str = "") -> None:
        process.live = False
        process.exit_code = code
        run = replace(self.run_of(process), reason=reason)
        self.inbox.append(events.Exited(run=run, **self.times()))

    def end_by_status(self, uid: str, phase: str) -> None:
        """Another writer gives the pod a terminal phase, whatever its containers do."""
        self.statuses[uid] = {"phase": phase}
        self.inbox.append(events.PodSeen(pod=self.as_listed(uid), **self.times()))

    def tick(self, seconds: float) -> None:
        self.at += seconds
        self.now += seconds
        for process in self.live():
            self.inbox.append(self.reading(process))
        self.inbox.append(events.TimePassed(**self.times()))

    # -- what the shell does

    def choices(self) -> list[int]:
        """Which of the pending instructions may be next: a checkpoint goes before all that follow it.

        While it cannot be written, those that change no container may go before it, as in the agent's loop.
        """
        if self.unwritable:
            waiting = (SaveLedger, Pin, *records.CHANGES)
            return [i for i, one in enumerate(self.pending) if not isinstance(one, waiting)]
        for i, one in enumerate(self.pending):
            if isinstance(one, SaveLedger):
                return list(range(i + 1))
        return list(range(len(self.pending)))

    def carry_out(self, choice: int, *, fails: bool = False) -> None:
        instruction = self.pending[choice]
        if isinstance(instruction, records.DeletePod):
            earlier = [
                one
                for one in self.pending[:choice]
                if isinstance(one, records.PublishStatus) and one.uid == instruction.uid
            ]
            if earlier:
                return
        self.pending.pop(choice)
        name = type(instruction).__name__.lower()
        getattr(self, f"_{name}")(instruction, fails)
        self.check()

    def deliver(self, choice: int) -> None:
        """Tell one thing; pods' changes keep their order."""
        event = self.inbox[choice]
        if isinstance(event, events.PodSeen | events.PodGone):
            event = next(e for e in self.inbox if isinstance(e, events.PodSeen | events.PodGone))
        self.inbox.remove(event)
        self.feed(event)

    def _saveledger(self, order: SaveLedger, fails: bool) -> None:
        self.disk = codec.encode(order.ledger)

    def _start(self, order: records.Start, fails: bool) -> None:
        uid = order.plan.uid
        answer = {"uid": uid, "container": order.container, "attempt": order.attempt, **self.times()}
        if fails:
            code = 128 if order.attempt % 2 else None
            self.inbox.append(StartFailed(reason="StartError", message="no", exit_code=code, **answer))
            return
        ident = f"{uid}-{order.container}-{order.attempt}"
        assert ident not in self.processes
        request = next(one for one in order.plan.request.containers if one.name == order.container)
        sharing, common = self.promised(order.plan.request, request)
        self.processes[ident] = Process(
            ident,
            uid,
            order.container,
            order.attempt,
            order.cpus,
            sharing,
            common,
            mems=order.mems or memory_nodes(self.machine),
            quota_us=None if sharing.exclusive else cfs.quota_us(request.cpu_limit) or None,
        )
        self.ran[uid, order.container] = self.ran.get((uid, order.container), 0) + 1
        self.inbox.append(Started(id=ident, started_at=self.at, **answer))

    def promised(self, pod: PodRequest, container: ContainerRequest) -> tuple[Sharing, bool]:
        """With whom its pod's class lets a container share, and whether it has its CPUs with its siblings."""
        if self.pools is None:
            return (Sharing.ALONE if pod.exclusive_cpus(container) else Sharing.POOL), False
        decided = pod_class(pod, self.pools)
        if decided.own and container.name not in decided.own:
            return Sharing.POOL, False
        return decided.sharing, bool(decided.common)

    def _pin(self, order: Pin, fails: bool) -> None:
        process = self.processes.get(order.id)
        if process is None or not process.live or fails:
            self.inbox.append(events.PinFailed(id=order.id, message="no", **self.times()))
            return
        process.cpus = order.cpus
        process.returning |= process.escaped
        process.escaped = False
        process.mems = order.update.mems or process.mems
        if order.update.quota_us is not KEEP:
            process.quota_us = order.update.quota_us
        answer = events.Pinned(
            id=order.id,
            cpus=order.cpus,
            allowed=order.cpus,
            resources=process.resources,
            **self.times(),
        )
        self.inbox.append(answer)

    def _observe(self, order: Observe, fails: bool) -> None:
        process = self.processes.get(order.id)
        if process and process.live:
            self.inbox.append(self.reading(process))
        else:
            self.inbox.append(events.Observed(id=order.id, allowed=CPUSet(), **self.times()))

    def reading(self, process: Process) -> events.Observed:
        return events.Observed(
            id=process.id, allowed=process.cpus, resources=process.resources, **self.times()
        )

    def _stop(self, order: records.Stop, fails: bool) -> None:
        process = self.processes.get(order.id)
        if process is None or not process.live:
            return
        if fails:
            self.inbox.append(StopFailed(id=order.id, message="no", **self.times()))
            return
        self.exit(process, 143)

    def _remove(self, order: records.Remove, fails: bool) -> None:
        assert not self.processes[order.id].live
        del self.processes[order.id]

    def _removepod(self, order: records.RemovePod, fails: bool) -> None:
        for process in [one for one in self.processes.values() if one.uid == order.uid]:
            assert not process.live
            del self.processes[process.id]

    def _publishstatus(self, order: records.PublishStatus, fails: bool) -> None:
        if order.uid in self.api:
            self.statuses[order.uid] = dict(order.status)

    def _deletepod(self, order: records.DeletePod, fails: bool) -> None:
        if order.uid in self.api:
            self.vanish(order.uid)

    def _annotate(self, order: Annotate, fails: bool) -> None:
        if order.uid in self.api:
            self.annotated[order.uid] = dict(order.cpus)
            pod = self.api[order.uid]
            self.api[order.uid] = replace(pod, request=replace(pod.request, proposal=dict(order.cpus)))

    def _publishevent(self, order: PublishEvent, fails: bool) -> None:
        self.told.append(order)

    def _publishtopology(self, order: PublishTopology, fails: bool) -> None:
        pass

    def settle(self, rounds: int = 10_000) -> None:
        """Carry out and tell everything, in order, until nothing is left to do."""
        self.unwritable = False
        for _ in range(rounds):
            if self.pending:
                self.carry_out(0)
            elif self.inbox:
                self.deliver(0)
            else:
                return
        raise AssertionError(f"never comes to rest: {self.pending} {self.inbox}")

    # -- what must hold

    def live(self) -> list[Process]:
        return [process for process in self.processes.values() if process.live]

    def check(self) -> None:
        """No process is where it meets one that it must not, and no container runs twice."""
        live = self.live()
        keys = [(process.uid, process.container) for process in live]
        assert len(keys) == len(set(keys)), keys
        assert all(process.cpus for process in live)
        met = [pair for pair in combinations(live, 2) if self.may_not(*pair)]
        for one, other in met:
            allowed = any(each.escaped or each.returning or each.displaced for each in (one, other))
            assert allowed, (one, other)
        for process in live:
            process.displaced &= not self.is_in_place(process)
            process.returning &= any(process in pair for pair in met)

    def may_not(self, one: Process, other: Process) -> bool:
        """Whether two are on a CPU together that must not be."""
        siblings = one.uid == other.uid and one.common and other.common
        compatible = self.sharing(one).compatible_with(self.sharing(other))
        return not (compatible or siblings or one.cpus.isdisjoint(other.cpus))

    def sharing(self, process: Process) -> Sharing:
        """What its class promises a container, unless it lost its CPUs, or its pod could not be placed."""
        entry = self.core.ledger.entries.get((process.uid, process.container))
        return process.sharing if entry is None or entry.cpus else entry.sharing

    def phase(self, uid: str) -> str:
        return self.statuses.get(uid, {}).get("phase", "")

    def container(self, uid: str, name: str) -> Process | None:
        """The live process of a container."""
        return next((p for p in self.live() if (p.uid, p.container) == (uid, name)), None)
