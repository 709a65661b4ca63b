"""A small API server, kernel and disk for the agent's state machine; they survive its crashes.

Instructions are carried out one at a time, in any order that the shell could choose; a crash drops the
core, what was ordered and what was not told yet. The kernel's own view is checked after every step.
"""

from dataclasses import dataclass, field, replace
from itertools import combinations

from corelane.agent import instructions
from corelane.agent.instructions import ContainerRun
from corelane.agent.pod_records import ContainerPlan, PodPlan, RestartPolicy
from corelane.agent.reporting import AgentReporter
from corelane.agent.state_machine import StateMachine
from corelane.cpuset import CPUSet
from corelane.machine import spec
from corelane.node import Sharing, codec
from corelane.node.config import NodeConfig, PoolOptions
from corelane.node.invariants import validate
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.node.ledger import new
from corelane.node.pools.classes import pod_class
from corelane.node.recovery.rebasing import rebase
from corelane.workload import ContainerKind, ContainerRequest, PlacementSpec, PodRequest, QOSClass

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
    returning: bool = False
    """Back from everywhere, it may find on its CPUs who has been there too, and is about to leave."""
    exit_code: int = 0
    stopping: bool = False


@dataclass
class World:
    cpus: int = 6
    reserved: int = 1
    spec: str = ""
    pools: PoolOptions | None = None
    kubelet: Checkpoint | None = None
    """What a kubelet beside the agent has pinned."""
    reporter: AgentReporter = field(default_factory=AgentReporter)
    at: float = 1_000_000.0
    api: dict[str, PodPlan] = field(default_factory=dict)
    statuses: dict[str, dict] = field(default_factory=dict)
    processes: dict[str, Process] = field(default_factory=dict)
    pending: list = field(default_factory=list)
    inbox: list = field(default_factory=list)
    told: list = field(default_factory=list)
    annotated: dict = field(default_factory=dict)
    ran: dict = field(default_factory=dict)
    failing: set = field(default_factory=set)

    def __post_init__(self) -> None:
        self.machine = spec.parse_spec(self.spec or f"core:{self.cpus} smt:1")
        self.config = NodeConfig(reserved_count=self.reserved)
        if self.pools is not None:
            self.config = replace(self.config, policy="pools", pools=self.pools)
        self.disk = codec.encode(new(self.machine, self.config))
        self.boot()

    # -- the agent comes and goes

    def boot(self) -> None:
        ledger, problems = rebase(codec.decode(self.disk, self.machine, self.config), self.machine)
        assert not problems
        self.core = StateMachine(
            ledger, reporter=self.reporter, validate=True, follows_kubelet=self.kubelet is not None
        )
        self.pending, self.inbox = [], []
        if self.kubelet is not None:
            self.feed(instructions.KubeletStateRead(checkpoint=self.kubelet, at=self.at))
        runs = tuple(self.run_of(process) for process in self.processes.values())
        self.feed(instructions.ContainersListed(runs=runs, at=self.at))
        for uid in self.api:
            self.feed(instructions.PodSeen(plan=self.as_listed(uid), at=self.at))
        self.feed(instructions.PodsListed(at=self.at))

    def lose_ledger(self) -> None:
        self.disk = codec.encode(new(self.machine, self.config))
        self.boot()

    def set_kubelet_state(self, file: Checkpoint) -> None:
        self.kubelet = file
        self.inbox.append(instructions.KubeletStateRead(checkpoint=file, at=self.at))

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
            started_at=self.at,
            finished_at=self.at,
            exit_code=process.exit_code,
        )

    def feed(self, event: instructions.AgentEvent) -> None:
        self.pending += self.core.handle(event)
        assert validate(self.core.ledger) == []

    # -- what users and processes do

    def add(self, pod: PodPlan) -> None:
        self.api[pod.uid] = replace(pod, created_at=self.at)
        self.inbox.append(instructions.PodSeen(plan=self.api[pod.uid], at=self.at))

    def delete(self, uid: str, grace: float = 30.0) -> None:
        if self.api[uid].deletion_grace is None:
            self.api[uid] = replace(self.api[uid], deletion_grace=grace)
            self.inbox.append(instructions.PodSeen(plan=self.as_listed(uid), at=self.at))

    def vanish(self, uid: str) -> None:
        del self.api[uid]
        self.inbox.append(instructions.PodGone(uid=uid, at=self.at))

    def exit(self, process: Process, code: int) -> None:
        process.live = False
        process.exit_code = code
        self.inbox.append(instructions.Exited(run=self.run_of(process), at=self.at))

    def tick(self, seconds: float) -> None:
        self.at += seconds
        for process in self.live():
            self.inbox.append(instructions.AllowedCPUsRead(id=process.id, allowed=process.cpus, at=self.at))
        self.inbox.append(instructions.TimePassed(at=self.at))

    # -- what the shell does

    def choices(self) -> list[int]:
        """Which of the pending instructions may be next: a checkpoint goes before all that follow it."""
        for i, one in enumerate(self.pending):
            if isinstance(one, instructions.SaveLedger):
                return list(range(i + 1))
        return list(range(len(self.pending)))

    def carry_out(self, choice: int, *, fails: bool = False) -> None:
        instruction = self.pending[choice]
        if isinstance(instruction, instructions.DeletePod):
            earlier = [
                one
                for one in self.pending[:choice]
                if isinstance(one, instructions.PublishStatus) and one.uid == instruction.uid
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
        if isinstance(event, instructions.PodSeen | instructions.PodGone):
            event = next(e for e in self.inbox if isinstance(e, instructions.PodSeen | instructions.PodGone))
        self.inbox.remove(event)
        self.feed(event)

    def _saveledger(self, order: instructions.SaveLedger, fails: bool) -> None:
        self.disk = codec.encode(order.ledger)

    def _start(self, order: instructions.Start, fails: bool) -> None:
        uid = order.plan.uid
        answer = {"uid": uid, "container": order.container, "attempt": order.attempt, "at": self.at}
        if fails:
            code = 128 if order.attempt % 2 else None
            self.inbox.append(
                instructions.StartFailed(reason="StartError", message="no", exit_code=code, **answer)
            )
            return
        ident = f"{uid}-{order.container}-{order.attempt}"
        assert ident not in self.processes
        request = next(one for one in order.plan.request.containers if one.name == order.container)
        sharing, common = self.promised(order.plan.request, request)
        self.processes[ident] = Process(
            ident, uid, order.container, order.attempt, order.cpus, sharing, common
        )
        self.ran[uid, order.container] = self.ran.get((uid, order.container), 0) + 1
        self.inbox.append(instructions.Started(id=ident, started_at=self.at, **answer))

    def promised(self, pod: PodRequest, container: ContainerRequest) -> tuple[Sharing, bool]:
        """With whom its pod's class lets a container share, and whether it has its CPUs with its siblings."""
        if self.pools is None:
            return (Sharing.ALONE if pod.exclusive_cpus(container) else Sharing.POOL), False
        decided = pod_class(pod, self.pools)
        if decided.own and container.name not in decided.own:
            return Sharing.POOL, False
        return decided.sharing, bool(decided.common)

    def _pin(self, order: instructions.Pin, fails: bool) -> None:
        process = self.processes.get(order.id)
        if process is None or not process.live or fails:
            self.inbox.append(instructions.PinFailed(id=order.id, message="no", at=self.at))
            return
        process.cpus = order.cpus
        process.returning |= process.escaped
        process.escaped = False
        self.inbox.append(instructions.Pinned(id=order.id, cpus=order.cpus, allowed=order.cpus, at=self.at))

    def _readallowedcpus(self, order: instructions.ReadAllowedCPUs, fails: bool) -> None:
        process = self.processes.get(order.id)
        allowed = process.cpus if process and process.live else CPUSet()
        self.inbox.append(instructions.AllowedCPUsRead(id=order.id, allowed=allowed, at=self.at))

    def _stop(self, order: instructions.Stop, fails: bool) -> None:
        process = self.processes.get(order.id)
        if process is None or not process.live:
            return
        if fails:
            self.inbox.append(instructions.StopFailed(id=order.id, message="no", at=self.at))
            return
        self.exit(process, 143)

    def _remove(self, order: instructions.Remove, fails: bool) -> None:
        assert not self.processes[order.id].live
        del self.processes[order.id]

    def _removepod(self, order: instructions.RemovePod, fails: bool) -> None:
        for process in [one for one in self.processes.values() if one.uid == order.uid]:
            assert not process.live
            del self.processes[process.id]

    def _publishstatus(self, order: instructions.PublishStatus, fails: bool) -> None:
        if order.uid in self.api:
            self.statuses[order.uid] = dict(order.status)

    def _deletepod(self, order: instructions.DeletePod, fails: bool) -> None:
        if order.uid in self.api:
            self.vanish(order.uid)

    def _annotate(self, order: instructions.Annotate, fails: bool) -> None:
        if order.uid in self.api:
            self.annotated[order.uid] = dict(order.cpus)
            pod = self.api[order.uid]
            self.api[order.uid] = replace(pod, request=replace(pod.request, proposal=dict(order.cpus)))

    def _publishevent(self, order: instructions.PublishEvent, fails: bool) -> None:
        self.told.append(order)

    def _publishtopology(self, order: instructions.PublishTopology, fails: bool) -> None:
        pass

    def settle(self, rounds: int = 10_000) -> None:
        """Carry out and tell everything, in order, until nothing is left to do."""
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
            assert any(each.escaped or each.returning for each in (one, other)), (one, other)
        for process in live:
            process.returning &= any(process in pair for pair in met)

    @staticmethod
    def may_not(one: Process, other: Process) -> bool:
        """Whether two are on a CPU together that must not be."""
        siblings = one.uid == other.uid and one.common and other.common
        return not (one.sharing.compatible_with(other.sharing) or siblings or one.cpus.isdisjoint(other.cpus))

    def phase(self, uid: str) -> str:
        return self.statuses.get(uid, {}).get("phase", "")

    def container(self, uid: str, name: str) -> Process | None:
        """The live process of a container."""
        return next((p for p in self.live() if (p.uid, p.container) == (uid, name)), None)
