"""How fast the scheduler's core decides, without an API server. Figures are CPU time of one thread."""

import gc
from collections.abc import Iterator
from dataclasses import dataclass
from time import thread_time_ns
from typing import Final

import scheduler_load as load
from msgspec.structs import replace
from report import Row

from corelane.kube.pod import Pod
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.events import BindSucceeded, CycleDue, NodeChanged, PodChanged, TopologyChanged
from corelane.scheduler.instructions import Bind, SetCondition

SIZES: Final = (500, 1000, 5000, 20_000)
PODS: Final = 3000
WARM_UP: Final = 400
NEW_SHAPES: Final = 15
BUDGET_S: Final = 40.0
"""CPU time after which a run ends early; its figure is then of the pods placed so far."""


@dataclass(slots=True)
class Run:
    """A core with a number of nodes, and what its decisions took."""

    core: SchedulerCore
    now: float = 0.0
    bound: int = 0
    refused: int = 0
    ns: int = 0
    longest_ns: int = 0

    def place(self, pods: list[Pod]) -> None:
        """Have pods arrive, placed and seen bound; counts every event of theirs."""
        began = thread_time_ns()
        for pod in pods:
            self.core.handle(PodChanged(self.now, None, pod))
        for _ in pods:
            self._decide()
            if (thread_time_ns() - began) > BUDGET_S * 1e9:
                break
        self.ns += thread_time_ns() - began

    def _decide(self) -> None:
        """Go on until a pod is bound or refused."""
        decided = self.decided
        while self.decided == decided and self.core.ready(self.now):
            self._one()

    def _one(self) -> None:
        """One CycleDue: a pod is bound, or refused; or its attempt goes on in the next one."""
        before = thread_time_ns()
        self.now += 0.0001
        done = self.core.handle(CycleDue(self.now))
        bind = next((one for one in done if isinstance(one, Bind)), None)
        if bind:
            self._bind(bind)
        self.bound += bool(bind)
        self.refused += sum(isinstance(one, SetCondition) for one in done)
        self.longest_ns = max(self.longest_ns, thread_time_ns() - before)

    def _bind(self, bind: Bind) -> None:
        """The API server accepts it, and the watch shows the pod bound."""
        self.core.handle(BindSucceeded(self.now, bind.pod.metadata.uid))
        metadata = replace(bind.pod.metadata, annotations=bind.pod.metadata.annotations | bind.annotations)
        bound = replace(bind.pod, metadata=metadata, spec=replace(bind.pod.spec, node_name=bind.node))
        self.core.handle(PodChanged(self.now, bind.pod, bound))

    @property
    def decided(self) -> int:
        """Number of decisions."""
        return self.bound + self.refused

    @property
    def us_each(self) -> float:
        return self.ns / 1e3 / max(1, self.decided)


def cluster(size: int, policy: str) -> Run:
    """Return a core that knows so many equal nodes."""
    run = Run(SchedulerCore())
    topologies = load.Topologies(load.state("template", policy))
    for number in range(size):
        run.core.handle(NodeChanged(0.0, None, load.slim_node(number)))
        run.core.handle(TopologyChanged(0.0, None, topologies.slim(load.node_name(number))))
    return run


def measured(size: int, policy: str, seed: int, count: int = PODS) -> Run:
    """Place pods, after some to warm up; the warm-up is not counted."""
    run = cluster(size, policy)
    pods = load.slim_pods(seed, WARM_UP + count)
    run.place(pods[:WARM_UP])
    run.bound = run.refused = run.ns = run.longest_ns = 0
    gc.collect()
    gc.freeze()
    run.place(pods[WARM_UP:])
    gc.unfreeze()
    return run


def new_shapes(run: Run) -> Iterator[float]:
    """Yield what the decision about a pod of a shape never seen before takes, in ms."""
    for number in range(NEW_SHAPES):
        obj = load.exclusive(f"new-{number}", 2 + number % 5, f"{3000 + number}Mi")
        obj["metadata"]["uid"] = f"uid-new-{number}"
        run.core.handle(PodChanged(run.now, None, load.read(obj, Pod)))
        began = thread_time_ns()
        run._decide()
        yield (thread_time_ns() - began) / 1e6


def rows(
    seed: int, sizes: tuple[int, ...] = SIZES, policies: tuple[str, ...] = ("pools", "static")
) -> Iterator[Row]:
    """Yield the rows of decisions alone."""
    for policy in policies:
        cost: dict[int, float] = {}
        for size in sizes:
            run = measured(size, policy, seed)
            cost[size] = run.us_each
            name = f"decisions, {policy}, {size} nodes"
            at_5000 = size == 5000
            yield Row(f"{name}: pods", 1e6 / run.us_each, "pods/s", 5000 if at_5000 else None, "higher")
            yield Row(f"{name}: longest", run.longest_ns / 1e6, "ms", None)
            yield Row(f"{name}: placed", 100 * run.bound / max(1, run.decided), "%", None, "higher")
            if at_5000:
                taken = sorted(new_shapes(run))
                yield Row(f"{name}: new shape, median", taken[len(taken) // 2], "ms", 10)
                yield Row(f"{name}: new shape, longest", taken[-1], "ms", None)
        if len(cost) > 1:
            least, most = min(cost), max(cost)
            yield Row(
                f"decisions, {policy}: cost of a pod at {most} nodes in that at {least}",
                cost[most] / cost[least],
                "x",
                most / least,
            )
