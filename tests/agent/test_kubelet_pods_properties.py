"""Random histories beside a kubelet: events are lost or late, the agent is killed between any two steps."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.agent.allocation import records
from corelane.agent.allocation.instructions import Pin
from corelane.node import codec
from corelane.node.config import PoolOptions
from corelane.workload import PlacementSpec, PodQOS
from corelane.workload.request import QOSClass
from support.agent_world import APP, INIT, SIDECAR
from support.kubelet_world import KubeletWorld, bound_pod

SHAPES = (
    lambda uid: bound_pod(uid, ("a", APP, 1000)),
    lambda uid: bound_pod(uid, ("a", APP, 2000)),
    lambda uid: bound_pod(uid, ("a", APP, 2000), ("b", APP, 1000)),
    lambda uid: bound_pod(uid, ("a", APP, 100), qos=QOSClass.BURSTABLE),
    lambda uid: bound_pod(uid, ("a", APP, 0), qos=QOSClass.BEST_EFFORT),
    lambda uid: bound_pod(uid, ("i", INIT, 2000), ("s", SIDECAR, 1000), ("a", APP, 1000), ("b", APP, 50)),
    lambda uid: bound_pod(uid, ("a", APP, 1500), placement_spec=PlacementSpec(qos=PodQOS.LSR)),
    lambda uid: bound_pod(uid, ("a", APP, 300), placement_spec=PlacementSpec(qos=PodQOS.BE)),
)
OPERATIONS = (
    *("carry", "deliver") * 6,
    *("start",) * 4,
    *("add", "work", "exit") * 2,
    "delete",
    "force",
    "tick",
    "fail",
    "escape",
    "resync",
    "malform",
    "finish",
)
TROUBLE = (
    "crash",
    "crash",
    "fail",
    "lose-event",
    "lose-event",
    "resync",
    "tick",
    "escape",
    "bare",
    "malform",
    "spoil",
    "down",
)
UNKNOWN = (
    *("carry", "deliver", "work") * 4,
    *("start", "exit", "add", "tick", "crash", "lose", "stale", "lose-event", "resync", "delete"),
)
STEP = st.tuples(st.sampled_from(OPERATIONS + TROUBLE), st.integers(0, 999))


class History:
    def __init__(self, world: KubeletWorld) -> None:
        self.world = world
        self.count = 0

    def step(self, operation: str, choice: int) -> None:
        getattr(self, operation.replace("-", "_"))(choice)

    def carry(self, choice: int, fails: bool = False) -> None:
        if choices := self.world.choices():
            self.world.carry_out(choices[choice % len(choices)], fails=fails)

    def fail(self, choice: int) -> None:
        """A change of a container fails; it may have taken effect all the same."""
        orders = [place for place in self.world.choices() if isinstance(self.world.pending[place], Pin)]
        if orders:
            self.world.carry_out(orders[choice % len(orders)], fails=True)

    def deliver(self, choice: int) -> None:
        if self.world.inbox:
            self.world.deliver(choice % len(self.world.inbox))

    def work(self, choice: int) -> None:
        """Take some steps in their order, as without load."""
        for _ in range(choice % 20):
            self.carry(0)
            self.deliver(0)

    def start(self, choice: int) -> None:
        if due := self.world.startable():
            self.world.start(*due[choice % len(due)])

    def add(self, choice: int) -> None:
        self.count += 1
        if len(self.world.pods) < 8:
            self.world.add(SHAPES[choice % len(SHAPES)](f"u{self.count}"))

    def exit(self, choice: int) -> None:
        if live := self.world.live():
            self.world.exit(live[choice % len(live)])

    def delete(self, choice: int) -> None:
        if uids := sorted(self.world.pods):
            self.world.delete(uids[choice % len(uids)])

    def force(self, choice: int) -> None:
        """A pod's object goes while its containers run on."""
        if uids := sorted(self.world.pods):
            self.world.delete(uids[choice % len(uids)], force=True)

    def lose_event(self, choice: int) -> None:
        self.world.lose_event(choice)

    def resync(self, choice: int) -> None:
        self.world.resync()

    def finish(self, choice: int) -> None:
        """A pod ends; once in a while another writer says so, and its containers run on."""
        if uids := sorted(self.world.pods):
            self.world.finish(uids[choice % len(uids)], force=choice % 5 == 0)

    def spoil(self, choice: int) -> None:
        """The disk of the ledger fails, or works again."""
        self.world.unwritable = not self.world.unwritable

    def down(self, choice: int) -> None:
        """While the agent is down containers and pods end, and pods are deleted."""
        for number, happens in enumerate((self.exit, self.delete, self.finish)):
            if choice >> number & 1:
                happens(choice >> 3)
        self.crash(choice)

    def tick(self, choice: int) -> None:
        self.world.tick((0.3, 0.45, 1.0, 12.0)[choice % 4])

    def crash(self, choice: int) -> None:
        self.world.boot(pods_first=choice % 2 == 1)

    def lose(self, choice: int) -> None:
        self.world.lose_ledger()

    def escape(self, choice: int) -> None:
        """Something else changes a container's cpuset."""
        if live := self.world.live():
            one = live[choice % len(live)]
            one.cpus, one.escaped, one.owned = self.world.machine.usable, True, False

    def bare(self, choice: int) -> None:
        if self.count % 5 == 0:
            self.world.create(f"bare-{next(self.world.numbers)}", f"sandbox-{choice}", "b", None)

    def malform(self, choice: int) -> None:
        """A pod's object becomes malformed, or is repaired."""
        if uids := sorted(self.world.pods):
            uid = uids[choice % len(uids)]
            self.world.undecodable ^= {uid}
            self.world.tell(uid)

    def blind(self, choice: int) -> None:
        """Nobody names pods any more."""
        self.world.blind = True

    def see(self, choice: int) -> None:
        self.world.blind = False
        self.world.list_pods()

    def stale(self, choice: int) -> None:
        self.world.list_of_old((0.0, 5.0, 40.0)[choice % 3])

    def rest(self, choice: int = 0) -> None:
        """Let time pass until nothing more happens."""
        world = self.world
        world.blind = False
        for uid in sorted(world.undecodable):
            world.undecodable.discard(uid)
            world.tell(uid)
        for _ in range(6):
            world.run_all()
            for one in world.live():
                ended = one.uid not in world.pods or world.pods[one.uid].ended
                if one.name == "i" or (ended and not one.id.startswith("bare")):
                    world.exit(one)
            world.tick(35.0)
            world.resync()
        world.settle()


def check(history: History, steps: list[tuple[str, int]]) -> None:
    for operation, choice in steps:
        history.step(operation, choice)
        history.world.check()
    history.rest()
    world = history.world
    assert world.startable() == []
    ledger = world.core.ledger
    for one in world.live():
        entry = ledger.entries[one.uid, one.name]
        if world.core.allocation.pods[one.uid].unmanaged:
            continue
        assert one.cpus == ledger.runs_on(entry), (one, entry)
        assert entry.phase == "confirmed"
    going_on = {uid for uid, pod in world.pods.items() if not pod.ended}
    assert ledger.pods.keys() == going_on | {one.uid for one in world.live()}
    assert codec.decode(world.disk, world.machine, world.config).pods.keys() == ledger.pods.keys()


def world(nri: bool, pools: bool, cpus: int = 9) -> KubeletWorld:
    """With few CPUs they change owner often."""
    return KubeletWorld(cpus=cpus, nri=nri, pools=PoolOptions() if pools else None)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(st.sampled_from(OPERATIONS + TROUBLE), st.integers(0, 999)), min_size=10, max_size=100
    ),
    st.booleans(),
    st.booleans(),
)
def test_no_cpu_has_two_owners_and_every_container_gets_its_cpus(
    steps: list[tuple[str, int]], nri: bool, pools: bool
) -> None:
    check(History(world(nri, pools)), steps)


@pytest.mark.parametrize("nri", [False, True])
def test_kills_at_a_thousand_points_give_no_cpu_two_owners_and_move_no_exclusive_container(nri: bool) -> None:
    kills = 0
    for seed in range(10_000):
        chance = random.Random(seed)
        history = History(world(nri, pools=seed % 2 == 1, cpus=(4, 5, 9)[seed % 3]))
        steps = [(chance.choice(OPERATIONS), chance.randrange(1000)) for _ in range(160)]
        # Seldom enough that orders overlap, and often enough that few of them are carried out.
        for place in sorted(chance.sample(range(20, 160), chance.choice((4, 12, 25))), reverse=True):
            steps.insert(place, ("crash", chance.randrange(1000)))
        check(history, steps)
        kills += history.world.crashes - 1
        if kills > 2000:
            return


@pytest.mark.parametrize("nri", [False, True])
def test_after_the_loss_of_the_ledger_exclusive_containers_stay_where_they_run(nri: bool) -> None:
    owners = 0
    for seed in range(100):
        chance = random.Random(seed)
        history = History(world(nri, pools=seed % 2 == 1, cpus=(4, 5, 9)[seed % 3]))
        for _ in range(80):
            history.step(chance.choice(OPERATIONS), chance.randrange(1000))
        history.rest()
        before = {one.id: one.cpus for one in history.world.live() if history.world.owner(one)}
        history.world.lose_ledger()
        history.rest()
        after = {one.id: one.cpus for one in history.world.live() if history.world.owner(one)}
        assert after.items() >= before.items()
        owners += len(before)
    assert owners > 50


@pytest.mark.parametrize("nri", [False, True])
def test_pods_that_are_not_known_are_held_as_they_run_and_admitted_once_they_are(nri: bool) -> None:
    """The agent may be killed, or lose its ledger, while nobody names the pods."""
    unknown = exclusive = 0
    for seed in range(300):
        chance = random.Random(seed)
        history = History(world(nri, pools=False, cpus=(5, 9)[seed % 2]))
        for _ in range(40):
            history.step(chance.choice(OPERATIONS), chance.randrange(1000))
        history.step("rest", 0)
        before = {one.id: one.cpus for one in history.world.live() if history.world.owner(one)}
        history.blind(0)
        for _ in range(60):
            history.step(chance.choice(UNKNOWN), chance.randrange(1000))
            unknown += any(pod.held for pod in history.world.core.pods.values())
        left = {one.id: one.cpus for one in history.world.live() if not one.escaped}
        assert all(left[ident] == cpus for ident, cpus in before.items() if ident in left)
        check(history, [("see", 0)])
        core = history.world.core
        for pod in core.pods.values():
            if pod.unplaced and not pod.unmanaged:
                assert records.admit_pod(core.ledger, pod)[1].refusal, f"{pod.uid} has room"
        exclusive += sum(entry.exclusive for entry in core.ledger.entries.values())
    assert unknown > 1000 and exclusive > 300
