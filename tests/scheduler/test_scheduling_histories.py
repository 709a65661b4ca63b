"""Random histories of a cluster, with the scheduler's core in the middle of it."""

from collections import Counter
from collections.abc import Callable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from corelane import node as nodes
from corelane.cpuset import CPUSet
from corelane.kube import node_terms, translate
from corelane.kube.objects import NodeSpec
from corelane.kube.pod import Pod
from corelane.node.ledger import NodeState
from corelane.scheduler.cluster.node_info import taints_of
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.instructions import Bind
from corelane.scheduler.queue.parked import LONGEST_PARKED
from support.pods import container, guaranteed, pod
from support.scheduler_world import World

NODES = {"n0": ("core:4 smt:2", 8), "n1": ("socket:2 core:4", 8)}
SHAPES: tuple[Callable[[str], Pod], ...] = (
    *(lambda name, cpus=cpus: guaranteed(name, cpus) for cpus in ("1", "2", "3", "4", "9")),
    *(lambda name, cpus=cpus: pod(name, container("x", f"cpu={cpus}", "")) for cpus in ("500m", "2", "5")),
    lambda name: pod(name, container("a", "cpu=2 memory=1Gi"), container("b", "cpu=500m memory=1Gi")),
    lambda name: pod(name, container("a", "cpu=2 memory=1Gi"), init=(container("i", "cpu=3 memory=1Gi"),)),
)
NAMES = st.sampled_from(sorted(NODES))
NUMBERS = st.integers(0, 40)
STEP = st.one_of(
    st.tuples(st.just("come"), st.integers(0, len(SHAPES) - 1)),
    st.tuples(st.just("come"), st.integers(0, len(SHAPES) - 1)),
    st.tuples(st.just("end"), NUMBERS),
    st.tuples(st.just("delete"), NUMBERS),
    st.tuples(st.just("work"), NAMES),
    st.tuples(st.just("publish"), NAMES),
    st.tuples(st.just("cordon"), NAMES),
    st.tuples(st.just("hear"), st.sampled_from(["node", "topology", "pod", "pod"])),
    st.tuples(st.just("hear"), st.just("all")),
    st.tuples(st.just("time"), st.sampled_from([0, 0, 1, 5, 70])),
    st.tuples(st.just("time"), st.just(1)),
    st.tuples(st.just("answer"), st.sampled_from(["ok", "refuse", "throttle"])),
    st.tuples(st.just("answer"), st.sampled_from(["ok", "lose", "late", "mute"])),
    st.tuples(st.just("conflict"), st.sampled_from(["mute", "late"])),
    st.tuples(st.just("look_up"), st.sampled_from(["ok", "ok", "lose"])),
    st.tuples(st.just("late"), st.just(0)),
)
SEEN: Counter[str] = Counter()


class History:
    """Takes steps in a world, and checks what must hold after each."""

    def __init__(self) -> None:
        self.world = World()
        self.count = 0
        for name, (spec, cpus) in NODES.items():
            self.world.node_comes(name, spec, cpus)

    def take(self, what: str, how: object) -> None:
        getattr(self, what)(how)
        self.check()

    def come(self, shape: int) -> None:
        self.count += 1
        self.world.pod_comes(SHAPES[shape](f"p{self.count}"))

    def end(self, number: int) -> None:
        running = [u for u, p in self.world.pods.items() if p.spec.node_name and not p.ended]
        if running:
            self.world.pod_ends(running[number % len(running)])

    def delete(self, number: int) -> None:
        """One that never ran, or has ended."""
        idle = [u for u, p in self.world.pods.items() if p.ended or not p.spec.node_name]
        if idle:
            self.world.remove_pod(idle[number % len(idle)])

    def work(self, name: str) -> None:
        self.world.agent_works(name)

    def publish(self, name: str) -> None:
        self.world.publish(name)

    def cordon(self, name: str) -> None:
        known = self.world.nodes[name]
        spec = NodeSpec(unschedulable=not known.spec.unschedulable)
        self.world.set_node(replace(known, spec=spec))

    def hear(self, kind: str) -> None:
        if kind == "all":
            self.world.hear_everything()
        else:
            self.world.hear(kind)

    def time(self, seconds: float) -> None:
        before = len(self.world.asked)
        self.world.tick(seconds)
        for bind in list(self.world.asked)[before:]:
            SEEN["bind"] += 1
            self.check_proposal(bind)

    def answer(self, how: str) -> None:
        SEEN[how] += self.world.answer(how) is not None

    def conflict(self, how: str) -> None:
        """A binding is carried out without an answer, and answered with 409 when it is sent again."""
        if self.world.asked:
            self.answer(how)
            self.late(0)
            self.time(1)
            self.answer("ok")

    def look_up(self, how: str) -> None:
        SEEN["look_up"] += bool(self.world.looked_up)
        self.world.look_up(how)

    def late(self, _: int) -> None:
        self.world.carry_out_late()

    def check_proposal(self, bind: Bind) -> None:
        """No CPU goes to two pods, and what is promised in all fits the node."""
        mine = bind.pod.metadata.uid
        others = self.promised(bind.node) - {mine}
        taken = CPUSet()
        for uid in others:
            for cpus in self.lanes(uid).values():
                taken |= cpus
        for cpus in bind.assignments.values():
            assert cpus.isdisjoint(taken), f"{cpus} of {bind.pod.title} belong to another: {taken}"
        infos = [PodInfo.of(self.world.pods[uid]) for uid in others | {mine} if uid in self.world.pods]
        assert sum(info.requests.get("cpu", 0) for info in infos) <= 8000

    def promised(self, node: str) -> set[str]:
        """Pods that run on a node, or have been promised it without an answer so far."""
        running = {u for u, p in self.world.pods.items() if p.spec.node_name == node and not p.ended}
        late = [bind for _, bind in self.world.late]
        asked = {b.pod.metadata.uid for b in (*self.world.asked, *late) if b.node == node}
        return running | {uid for uid in asked if uid in self.world.pods and not self.world.pods[uid].ended}

    def lanes(self, uid: str) -> dict[str, CPUSet]:
        known = self.world.pods[uid]
        if known.spec.node_name:
            return dict(translate.request(known).proposal)
        sent = (*self.world.asked, *(bind for _, bind in self.world.late))
        return next(dict(b.assignments) for b in sent if b.pod.metadata.uid == uid)

    def check(self) -> None:
        self.every_pending_pod_is_known_and_has_a_reason()
        self.agents_take_every_proposal_as_it_stands()
        self.every_pod_counts_once()

    def every_pending_pod_is_known_and_has_a_reason(self) -> None:
        pending = {u for u, p in self.world.heard.items() if not p.spec.node_name and not p.ended}
        reasons = self.world.core.pending()
        assert set(reasons) == pending
        assert all(reasons.values())

    def agents_take_every_proposal_as_it_stands(self) -> None:
        assert self.world.repicks == 0
        assert self.world.refusals == 0

    def every_pod_counts_once(self) -> None:
        for node in self.world.core.cluster.placeable():
            assert not isinstance(node.state, NodeState) or nodes.validate(node.state) == []
            summed: Counter[str] = Counter()
            for info in node.pods.values():
                summed.update(info.requests)
            assert +Counter(node.requested) == +summed

    def finish(self) -> None:
        """When all is heard and done, whoever still waits really fits nowhere."""
        for _ in range(8):
            self.settle()
        for uid in self.world.core.pending():
            waiting = self.world.pods[uid]
            assert not any(self.fits(waiting, name) for name in NODES), f"{uid} was forgotten"

    def settle(self) -> None:
        self.world.hear_everything()
        for name in NODES:
            self.world.agent_works(name)
            self.world.publish(name)
        self.world.hear_everything()
        self.world.tick(20)
        while self.world.asked or self.world.looked_up or self.world.core.ready(self.world.now):
            self.answer("ok")
            self.look_up("ok")
            self.world.hear_everything()
            self.time(0)
        self.check()

    def fits(self, waiting: Pod, name: str) -> bool:
        node = self.world.nodes[name]
        _, decision = nodes.admit(self.world.agents[name], translate.request(waiting))
        open_to_it = not node.spec.unschedulable and node_terms.untolerated(waiting, taints_of(node)) is None
        return decision.admitted and open_to_it


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(STEP, min_size=50, max_size=150))
def test_in_any_history_no_cpu_is_proposed_twice_and_no_pod_is_lost(
    steps: list[tuple[str, object]],
) -> None:
    history = History()
    for step in steps:
        history.take(*step)
    history.finish()


def test_the_histories_were_eventful() -> None:
    """Runs after the one above: what it means to test must have happened, and often."""
    assert LONGEST_PARKED > 8 * 20, "what is retried by time alone must not help histories to finish"
    if SEEN:
        assert min(SEEN[what] for what in ("bind", "ok", "refuse", "lose", "mute", "late")) > 2, SEEN
