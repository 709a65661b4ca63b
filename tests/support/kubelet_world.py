"""A kubelet, a runtime, a kernel and a disk beside the agent's allocation; they survive its crashes.

The kubelet starts and ends containers without asking, or asks before (`nri`). Events may be lost, or come
late and in any order; instructions are carried out in any order, and may fail. The kernel's own view is
checked after every step.
"""

from dataclasses import dataclass, field, replace
from itertools import combinations, count

from corelane.agent.allocation import events
from corelane.agent.allocation.allocation import Allocation
from corelane.agent.allocation.events import AgentEvent, ContainerRun
from corelane.agent.allocation.instructions import (
    AnswerCreate,
    Instruction,
    Observe,
    Pin,
    PublishCondition,
    PublishEvent,
    RecordResized,
    SaveLedger,
)
from corelane.agent.allocation.outbox import AllocationReporter
from corelane.agent.allocation.records import BoundPod
from corelane.agent.kubelet.kubelet_pods import KubeletPods
from corelane.cpuset import CPUSet
from corelane.machine import spec
from corelane.node import codec
from corelane.node.config import NodeConfig, PoolOptions
from corelane.node.entries import Sharing
from corelane.node.invariants import validate
from corelane.node.ledger import NodeState, new
from corelane.node.recovery.rebasing import rebase
from corelane.workload.request import ContainerKind
from support.agent_world import plan

TIMEOUT = 0.5


def bound_pod(uid: str, *containers: tuple[str, ContainerKind, int], **members: object) -> BoundPod:
    """A pod of containers given as (name, kind, milliCPU)."""
    made = plan(uid, *containers, **members)
    return BoundPod(made.request, created_at=made.created_at)


@dataclass(slots=True)
class Container:
    """A container of the runtime. `asked`: it has never been on CPUs that the agent did not choose."""

    id: str
    uid: str
    name: str
    cpus: CPUSet
    placed: bool
    live: bool = True
    escaped: bool = False
    owned: bool = False
    """It was alone on its own CPUs: from then on it must not be moved."""
    displaced: bool = False


@dataclass
class KubeletWorld:
    cpus: int = 8
    nri: bool = False
    pools: PoolOptions | None = None
    reporter: AllocationReporter = field(default_factory=AllocationReporter)
    at: float = 1_000_000.0
    now: float = 5_000.0
    pods: dict[str, BoundPod] = field(default_factory=dict)
    undecodable: set[str] = field(default_factory=set)
    blind: bool = False
    """Neither kubelet nor API server name a pod."""
    named: set[str] = field(default_factory=set)
    """Pods that this agent was told of."""
    containers: dict[str, Container] = field(default_factory=dict)
    creating: events.ContainerCreating | None = None
    pending: list[Instruction] = field(default_factory=list)
    inbox: list[AgentEvent] = field(default_factory=list)
    told: list[PublishEvent] = field(default_factory=list)
    conditions: dict[str, PublishCondition] = field(default_factory=dict)
    crashes: int = 0
    unwritable: bool = False
    """The ledger cannot be written: what changes containers waits, everything else goes on."""
    unanswered: set[str] = field(default_factory=set)
    """Containers whose last order was not answered yet: none may be given another one."""
    needs: dict[int, int] = field(default_factory=dict)
    """By the identity of an order the number of the ledger that it follows from."""
    saved: int = 0
    promised: dict[tuple[str, str], CPUSet] = field(default_factory=dict)
    """Exclusive CPUs by container as they were written to disk: they stay while the pod exists."""

    def __post_init__(self) -> None:
        self.machine = spec.parse_spec(f"core:{self.cpus} smt:1")
        self.config = NodeConfig(reserved_count=1)
        if self.pools is not None:
            self.config = replace(self.config, policy="pools", pools=self.pools)
        self.numbers = count()
        self.disk = codec.encode(new(self.machine, self.config))
        self.boot()

    def times(self) -> dict[str, float]:
        """The times of an event; no two are at the same moment."""
        self.now += 1e-6
        return {"at": self.at, "now": self.now}

    # -- the agent comes and goes

    def boot(self, *, pods_first: bool = False) -> None:
        """Start an agent. It is told of containers and pods in any order, here of the pods first or last."""
        ledger, problems = rebase(codec.decode(self.disk, self.machine, self.config), self.machine)
        assert not problems
        self.core = KubeletPods(Allocation(ledger, reporter=self.reporter, validate=True))
        self.pending, self.inbox = [], []
        self.unanswered, self.needs = set(), {}
        self.crashes += 1
        if self.creating:
            self.time_out()
        self.named = set()
        self.list_pods()
        self.inbox.insert(len(self.inbox) if pods_first else 0, self.listing())

    def lose_ledger(self) -> None:
        """Start an agent without one: containers of the pool are as those from before corelane."""
        self.disk = codec.encode(new(self.machine, self.config))
        self.promised = {}
        for one in self.live():
            one.placed = one.owned
        self.boot()

    def feed(self, event: AgentEvent) -> None:
        orders = self.core.handle(event)
        number = next(self.numbers)
        self.unanswered &= {run.id for run in self.core.runs()}
        for order in orders:
            if isinstance(order, Pin):
                assert order.id not in self.unanswered, f"{order} while the last one is outstanding"
                self.unanswered.add(order.id)
            if any(isinstance(other, SaveLedger) for other in orders):
                self.needs[id(order)] = number
        self.pending += orders
        assert validate(self.core.ledger) == []

    def listing(self) -> events.ContainersListed:
        runs = tuple(self.run_of(one) for one in self.containers.values() if one.live)
        times = self.times()
        return events.ContainersListed(runs=runs, began=times["now"], **times)

    def run_of(self, one: Container) -> ContainerRun:
        allowed = one.cpus if one.live else CPUSet()
        return ContainerRun(
            id=one.id, uid=one.uid, container=one.name, attempt=0, live=one.live, allowed=allowed
        )

    def seen(self, uid: str) -> AgentEvent:
        if uid in self.undecodable:
            return events.PodUndecodable(uid=uid, namespace="default", name=f"pod-{uid}", **self.times())
        return events.PodSeen(pod=self.pods[uid], **self.times())

    # -- what users and the kubelet do

    def add(self, pod: BoundPod) -> None:
        self.pods[pod.uid] = replace(pod, created_at=self.at)
        self.tell(pod.uid)

    def tell(self, uid: str) -> None:
        """The agent is told of a pod as it is by now, or that it is gone, unless nobody answers."""
        if self.blind:
            return
        if uid in self.pods:
            self.named.add(uid)
            self.inbox.append(self.seen(uid))
        elif uid in self.named:
            self.named.discard(uid)
            self.inbox.append(events.PodGone(uid=uid, **self.times()))

    def delete(self, uid: str, *, force: bool = False) -> None:
        """The kubelet ends a pod's containers, and its object goes; events of both come in any order.

        With `force` the object goes first, and the containers run on.
        """
        for one in self.live():
            if one.uid == uid and not force:
                self.exit(one)
        del self.pods[uid]
        self.promised = {key: cpus for key, cpus in self.promised.items() if key[0] != uid}
        self.tell(uid)

    def finish(self, uid: str, *, force: bool = False) -> None:
        """The pod's phase becomes terminal; with `force` another writer does that, and containers run on."""
        for one in self.live():
            if one.uid == uid and not force:
                self.exit(one)
        self.pods[uid] = replace(self.pods[uid], ended=True)
        self.promised = {key: cpus for key, cpus in self.promised.items() if key[0] != uid}
        self.inbox.append(self.seen(uid))

    def startable(self) -> list[tuple[str, str]]:
        """Containers that the kubelet would start now: apps once all init containers have run."""
        running = {(one.uid, one.name) for one in self.live()}
        ran = {(one.uid, one.name) for one in self.containers.values()}
        due = []
        for uid, pod in self.pods.items():
            for container in pod.request.containers if not pod.ended else ():
                key = uid, container.name
                init = container.kind is ContainerKind.INIT
                if key not in running and not (init and key in ran):
                    due.append(key)
                if init and (key not in ran or key in running):
                    break
        return due

    def start(self, uid: str, name: str) -> Container | None:
        """Start a container unasked, or ask before, one question at a time as a runtime does."""
        ident = f"{uid}-{name}-{next(self.numbers)}"
        if not self.nri:
            return self.create(ident, uid, name, None)
        if self.creating is None:
            self.creating = events.ContainerCreating(
                token=ident,
                id=ident,
                uid=uid,
                container=name,
                deadline=self.now + TIMEOUT * 0.8,
                namespace="default",
                pod=f"pod-{uid}",
                **self.times(),
            )
            self.inbox.insert(0, self.creating)
        return None

    def create(self, ident: str, uid: str, name: str, cpus: CPUSet | None) -> Container:
        one = Container(ident, uid, name, cpus or self.machine.usable, placed=cpus is not None)
        self.containers[ident] = one
        self.inbox.append(events.ContainerSeen(run=self.run_of(one), **self.times()))
        return one

    def time_out(self) -> None:
        """The runtime goes on without the answer."""
        asked, self.creating = self.creating, None
        assert asked
        self.inbox = [one for one in self.inbox if one is not asked]
        self.inbox.append(events.CreationLost(token=asked.token, **self.times()))
        if asked.uid in self.pods:
            self.create(asked.id, asked.uid, asked.container, None)

    def exit(self, one: Container) -> None:
        one.live = False
        self.inbox.append(events.Exited(run=self.run_of(one), **self.times()))

    def lose_event(self, choice: int) -> None:
        """Lose an event of the runtime; those about pods are listed again and again."""
        lossy = (events.ContainerSeen, events.Exited, events.Observed)
        lost = [one for one in self.inbox if isinstance(one, lossy)]
        if lost:
            self.inbox.remove(lost[choice % len(lost)])

    def tick(self, seconds: float) -> None:
        self.at += seconds
        self.now += seconds
        if self.creating and self.now >= self.creating.deadline + TIMEOUT * 0.2:
            self.time_out()
        for one in self.live():
            self.inbox.append(events.Observed(id=one.id, allowed=one.cpus, **self.times()))
        self.inbox.append(events.TimePassed(**self.times()))

    def resync(self) -> None:
        self.inbox.append(self.listing())
        self.list_pods()

    def list_pods(self) -> None:
        """The kubelet answers with its pods."""
        for uid in [*self.pods, *sorted(self.named - self.pods.keys())]:
            self.tell(uid)
        if not self.blind:
            self.inbox.append(events.PodsListed(**self.times()))

    def list_of_old(self, seconds: float) -> None:
        """An empty list that began so long ago, as of a kubelet that has just started.

        What has CPUs or a request may still be there.
        """
        there = frozenset(self.core.ledger.pods)
        self.inbox.append(events.PodsListed(remaining=there, began=self.now - seconds, **self.times()))

    # -- what the shell does

    def choices(self) -> list[int]:
        """Which of the pending instructions may be next: checkpoints and answers go before what follows."""
        if self.unwritable:
            waiting = SaveLedger | Pin | AnswerCreate
            return [i for i, order in enumerate(self.pending) if not isinstance(order, waiting)]
        for i, order in enumerate(self.pending):
            if isinstance(order, SaveLedger | AnswerCreate):
                return list(range(i + 1))
        return list(range(len(self.pending)))

    def carry_out(self, choice: int, *, fails: bool = False) -> None:
        order = self.pending.pop(choice)
        need = self.needs.pop(id(order), 0)
        assert need <= self.saved or not isinstance(order, Pin | AnswerCreate), f"{order} before its ledger"
        match order:
            case SaveLedger():
                self.saved = max(self.saved, need)
                self.save(order.ledger)
            case Pin():
                self.pin(order, fails)
            case AnswerCreate():
                self.answer(order)
            case Observe():
                one = self.containers.get(order.id)
                allowed = one.cpus if one and one.live else CPUSet()
                self.inbox.append(events.Observed(id=order.id, allowed=allowed, **self.times()))
            case PublishEvent():
                self.told.append(order)
            case RecordResized() if order.uid in self.pods:
                pod = self.pods[order.uid]
                self.pods[order.uid] = replace(pod, request=replace(pod.request, shared=order.containers))
            case PublishCondition():
                self.conditions[order.uid] = order
        self.check()

    def save(self, ledger: NodeState) -> None:
        self.disk = codec.encode(ledger)
        kept = {key: entry.cpus for key, entry in ledger.entries.items() if entry.exclusive}
        for key, cpus in self.promised.items():
            assert kept.get(key) == cpus, f"{key} had {cpus}, and now {kept.get(key)}"
        going_on = {uid for uid, pod in self.pods.items() if not pod.ended}
        self.promised |= {key: cpus for key, cpus in kept.items() if key[0] in going_on}

    def pin(self, order: Pin, fails: bool) -> None:
        """Carry an order out; one that fails may have been carried out all the same."""
        one = self.containers.get(order.id)
        if one is None or not one.live or fails:
            if one and one.live and next(self.numbers) % 2:
                one.cpus, one.placed = order.cpus, True
            self.inbox.append(events.PinFailed(id=order.id, message="no", **self.times()))
            return
        moved = one.owned and not one.escaped and order.cpus != one.cpus
        assert not moved, f"{one} is moved to {order.cpus} without need"
        for other in self.live() if self.pools is None else ():
            mine = other.owned and not other.escaped and (other.uid, other.name) != (one.uid, one.name)
            common = mine and other.uid != one.uid and not other.cpus.isdisjoint(order.cpus)
            assert not common, f"{one} is moved to {order.cpus}, on which {other} runs"
        one.cpus, one.placed, one.escaped = order.cpus, True, False
        self.inbox.append(events.Pinned(id=one.id, cpus=order.cpus, allowed=order.cpus, **self.times()))

    def answer(self, order: AnswerCreate) -> None:
        if self.creating is None or self.creating.token != order.token:
            return
        asked, self.creating = self.creating, None
        for ident, update in order.updates:
            other = self.containers.get(ident)
            assert not other or not other.live or other.escaped or other.cpus == update.cpus, (other, update)
        cpus = order.adjust.cpus if order.adjust else None
        if asked.uid in self.pods:
            self.create(asked.id, asked.uid, asked.container, cpus)

    def deliver(self, choice: int) -> None:
        event = self.inbox.pop(choice)
        kinds = events.PodSeen | events.PodUndecodable | events.PodGone | events.PodsListed
        if isinstance(event, kinds):
            self.inbox.insert(choice, event)
            event = next(one for one in self.inbox if isinstance(one, kinds))  # their order is kept
            self.inbox.remove(event)
        if isinstance(event, events.Pinned | events.PinFailed):
            self.unanswered.discard(event.id)
        self.feed(event)

    def settle(self, rounds: int = 10_000) -> None:
        """Carry out and deliver everything, in order, until nothing is left to do."""
        self.unwritable = False
        for _ in range(rounds):
            if self.pending:
                self.carry_out(0)
            elif self.inbox:
                self.deliver(0)
            elif self.creating:
                self.tick(TIMEOUT)
            else:
                return
        raise AssertionError(f"never comes to rest: {self.pending} {self.inbox}")

    def run_all(self) -> None:
        """Let the kubelet start everything, one after another."""
        self.settle()
        while due := self.startable():
            self.start(*due[0])
            self.settle()

    # -- what must hold

    def live(self) -> list[Container]:
        return [one for one in self.containers.values() if one.live]

    def container(self, uid: str, name: str = "a") -> Container | None:
        return next((one for one in self.live() if (one.uid, one.name) == (uid, name)), None)

    def owner(self, one: Container) -> bool:
        """Whether a container is on its own exclusive CPUs."""
        entry = self.core.ledger.entries.get((one.uid, one.name))
        return entry is not None and entry.exclusive and one.cpus == entry.cpus and not one.escaped

    def check(self) -> None:
        """No CPU belongs to two containers; nothing that the agent placed is on CPUs of an owner."""
        live = self.live()
        for one in live:
            one.owned |= one.placed and self.owner(one)
        for one, other in combinations(live, 2):
            if (one.uid, one.name) == (other.uid, other.name) or one.cpus.isdisjoint(other.cpus):
                continue
            for owner, guest in ((one, other), (other, one)):
                if owner.owned and self.owner(owner) and guest.placed and not guest.escaped:
                    assert self.compatible(owner, guest), (owner, guest)

    def compatible(self, owner: Container, guest: Container) -> bool:
        entries = self.core.ledger.entries
        first, second = entries.get((owner.uid, owner.name)), entries.get((guest.uid, guest.name))
        if first is None or second is None:
            return False
        siblings = first.uid == second.uid and first.common and second.common
        sharing = second.sharing if guest.cpus <= self.core.ledger.runs_on(second) else Sharing.POOL
        init = first.uid == second.uid and ContainerKind.INIT in (first.kind, second.kind)
        return siblings or init or first.sharing.compatible_with(sharing)
