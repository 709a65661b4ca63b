"""What the extension points of attempts take: each attempt is measured, by the daemon's clock."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from corelane.kube.client import KubeClient
from corelane.kube.pod import SchedulingGate
from corelane.reasons import Code, Reason
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.daemon.metrics import SchedulerMetrics, TimedPoints
from corelane.scheduler.daemon.scheduler import Scheduler
from corelane.scheduler.events import BindFailed, CycleDue
from corelane.scheduler.framework.plugin import Cycle, Rejection, Scope, Wait
from support import objects
from support.core_lab import CoreLab, profile_with
from support.pods import guaranteed

OURS = "corelane"


class Clock:
    """Moves only while a plugin of the test is asked."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Slow:
    """Takes so many seconds at each of its extension points, for each node that it is asked about."""

    name = "Slow"
    scope = Scope.ROW

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.refuses = self.waits = False

    def pre_filter(self, cycle: Cycle) -> Rejection | None:
        self.clock.now += 1
        refused = Rejection.of(self.name, Reason(Code.POD_INVALID, ("",)), resolvable=False)
        return refused if self.refuses else None

    def filter(self, cycle: Cycle, node: NodeInfo) -> Rejection | None:
        self.clock.now += 10
        return None

    def score(self, cycle: Cycle, node: NodeInfo) -> float:
        self.clock.now += 100
        return 1.0

    def reserve(self, cycle: Cycle, node: NodeInfo) -> Rejection | None:
        self.clock.now += 1000
        return None

    def unreserve(self, pod: PodInfo, node: str) -> None:
        pass

    def permit(self, cycle: Cycle, node: NodeInfo) -> Rejection | Wait | None:
        self.clock.now += 10_000
        return Wait(60) if self.waits else None


class Histogram:
    """What was observed: seconds, then the labels."""

    def __init__(self, seen: list[tuple[float, str, str, str]]) -> None:
        self.observed = seen

    def labels(self, *labels: str) -> SimpleNamespace:
        return SimpleNamespace(observe=lambda seconds: self.observed.append((seconds, *labels)))


class Lab(CoreLab):
    """Three nodes of 4 CPUs, and what was observed."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.slow = Slow(self.clock)
        super().__init__(profiles=(profile_with(self.slow, name=OURS),))
        self.observed: list[tuple[float, str, str, str]] = []
        self.core.cluster.points = TimedPoints(Histogram(self.observed), self.clock)
        self.has(*(objects.node(name, 4) for name in "abc"), spec="core:4")

    def attempt(self, name: str, cpus: str = "1", **spec: Any) -> None:
        self.add(guaranteed(name, cpus, **spec))
        self.tell(CycleDue(0))

    def taken(self) -> dict[str, tuple[float, str]]:
        assert {profile for *_, profile in self.observed} == {OURS}
        return {point: (seconds, status) for seconds, point, status, _ in self.observed}


def test_each_point_has_what_its_plugins_took() -> None:
    lab = Lab()
    lab.attempt("p")
    assert {point: one for point, one in lab.taken().items() if one[0]} == {
        "PreFilter": (1, "Success"),
        "Filter": (30, "Success"),
        "Score": (300, "Success"),
        "Reserve": (1000, "Success"),
        "Permit": (10_000, "Success"),
    }


@pytest.mark.parametrize(
    ("cpus", "refuses", "waits", "point", "status"),
    [
        ("1", True, False, "PreFilter", "UnschedulableAndUnresolvable"),
        ("9", False, False, "PostFilter", "Unschedulable"),
        ("1", False, True, "Permit", "Wait"),
    ],
)
def test_a_point_has_the_status_of_its_plugins(
    cpus: str, refuses: bool, waits: bool, point: str, status: str
) -> None:
    lab = Lab()
    lab.slow.refuses, lab.slow.waits = refuses, waits
    lab.attempt("p", cpus)
    assert lab.taken()[point][1] == status
    assert ("Reserve" in lab.taken()) == waits
    assert lab.taken().get("PreBindPreFlight", (0, ""))[1] == ("Skip" if waits else "")


def test_every_attempt_is_measured() -> None:
    lab = Lab()
    for number in range(5):
        lab.attempt(f"p{number}", "100m" if number else "1")
    for name in ("PreEnqueue", "PreFilter", "Filter", "Score", "Reserve", "Permit"):
        assert sum(point == name for _, point, *_ in lab.observed) == 5


def test_gated_pods_count_as_success_at_pre_enqueue_as_in_kube_scheduler() -> None:
    lab = Lab()
    lab.attempt("p", scheduling_gates=(SchedulingGate("example.com/wait"),))
    assert lab.observed == [(0, "PreEnqueue", "Success", OURS)]


def test_what_was_reserved_is_undone_once_and_measured() -> None:
    lab = Lab()
    lab.attempt("p")
    assert "Unreserve" not in lab.taken()
    lab.tell(BindFailed(0, "uid-p", "rejected", "no"))
    assert lab.taken()["Unreserve"][1] == "Success"


def test_the_daemon_measures_its_scheduler() -> None:
    async def main() -> str:
        client = KubeClient.connect_to("http://127.0.0.1:1")
        metrics, made = SchedulerMetrics(), Scheduler(client, name=OURS)
        metrics.attach(made)
        CoreLab(objects.node("a", 4), core=made.core).place(guaranteed("p", "9"))
        await client.close()
        return metrics.text()

    text = asyncio.run(main())
    name = "scheduler_framework_extension_point_duration_seconds_count"
    for point, status in (("PreFilter", "Success"), ("Filter", "Success"), ("PostFilter", "Unschedulable")):
        line = f'{name}{{extension_point="{point}",profile="{OURS}",status="{status}"}} 1.0'
        assert line in text.splitlines()
