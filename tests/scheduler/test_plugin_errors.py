"""A plugin that raises an error ends one attempt, not the scheduler."""

from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from corelane.kube.pod import Pod
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.daemon.metrics import SchedulerMetrics
from corelane.scheduler.events import CycleDue, NodeChanged, PodChanged
from corelane.scheduler.framework.plugin import Cycle, Depends, Scope
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.instructions import Bind, Instruction, SetCondition
from corelane.scheduler.plugins import default
from support import objects
from support.pods import container, pod


@dataclass
class Failing:
    """Raises at one extension point while `broken`."""

    point: str
    broken: bool = True
    undone: list[str] = field(default_factory=list)
    name = "Failing"
    scope = Scope.ROW
    depends = Depends.NODE

    def _reach(self, point: str) -> None:
        if self.broken and point == self.point:
            raise KeyError("example.com/rack")

    def pre_enqueue(self, pod: PodInfo) -> None:
        self._reach("preEnqueue")

    def pre_filter(self, cycle: Cycle) -> None:
        self._reach("preFilter")

    def filter(self, cycle: Cycle, node: object) -> None:
        self._reach("filter")

    def score(self, cycle: Cycle, node: object) -> float:
        self._reach("score")
        return 0.0

    def reserve(self, cycle: Cycle, node: object) -> None:
        self._reach("reserve")

    def unreserve(self, pod: PodInfo, node: str) -> None:
        self.undone.append(node)

    def permit(self, cycle: Cycle, node: object) -> None:
        self._reach("permit")


def core_with(plugin: Failing, metrics: SchedulerMetrics | None = None) -> SchedulerCore:
    ours = default.profile("s")
    profile = Profile("s", (*ours.plugins, plugin), ours.weights)
    core = SchedulerCore(profiles=(profile,), decisions=metrics)
    core.handle(NodeChanged(0, None, objects.node("a")))
    return core


def pending(name: str = "p") -> Pod:
    one = pod(name, container("x", "cpu=1", ""))
    return replace(one, spec=replace(one.spec, scheduler_name="s"))


def conditions(done: list[Instruction]) -> list[tuple[str, str]]:
    return [(one.reason, one.message) for one in done if isinstance(one, SetCondition)]


@pytest.mark.parametrize("point", ["preFilter", "filter", "score", "reserve", "permit"])
def test_the_pod_is_tried_again_after_its_back_off(point: str) -> None:
    plugin, metrics = Failing(point), SchedulerMetrics(clock=lambda: 0.0)
    core = core_with(plugin, metrics)
    core.handle(PodChanged(0, None, pending()))
    ((reason, message),) = conditions(core.handle(CycleDue(0)))
    assert reason == "SchedulerError"
    assert message.startswith("plugin Failing failed: KeyError: 'example.com/rack' (scheduler/test_plugin")
    assert bool(plugin.undone) == (point in {"reserve", "permit"})
    assert 'attempts_total{profile="s",result="error"} 1' in metrics.text()
    plugin.broken = False
    assert not core.ready(0.5)
    assert [one.node for one in core.handle(CycleDue(1)) if isinstance(one, Bind)] == ["a"]


def test_what_was_not_computed_for_the_error_is_computed_later() -> None:
    plugin = Failing("filter", broken=False)
    core = core_with(plugin)
    core.handle(PodChanged(0, None, pending("p")))
    assert any(isinstance(one, Bind) for one in core.handle(CycleDue(0)))
    plugin.broken = True
    core.handle(NodeChanged(0, None, objects.node("b")))
    core.handle(PodChanged(0, None, pending("q")))
    assert conditions(core.handle(CycleDue(0)))
    plugin.broken = False
    assert [one.node for one in core.handle(CycleDue(1)) if isinstance(one, Bind)] == ["b"]


def test_a_pre_enqueue_plugin_that_fails_keeps_the_pod_gated() -> None:
    plugin = Failing("preEnqueue")
    core = core_with(plugin)
    core.handle(PodChanged(0, None, pending()))
    assert core.queue.counts() == {"gated": 1}
    ((_, why),) = core.pending().items()
    assert "KeyError" in why


def test_a_pre_filter_that_a_profile_disables_alone_ends_attempts_with_the_plugins_name() -> None:
    """As in kube-scheduler, whose Filter finds no state then."""
    ours = default.profile("s")
    every = ("preFilter", "filter")
    points = {point: tuple(one for one in ours.plugins if hasattr(one, _method(point))) for point in every}
    points["preFilter"] = tuple(one for one in points["preFilter"] if one.name != "PodTopologySpread")
    core = SchedulerCore(profiles=(Profile("s", ours.plugins, ours.weights, points=points),))
    core.handle(NodeChanged(0, None, objects.node("a")))
    core.handle(PodChanged(0, None, pending()))
    ((reason, message),) = conditions(core.handle(CycleDue(0)))
    assert reason == "SchedulerError"
    assert message.startswith("plugin PodTopologySpread failed: KeyError")


def _method(point: str) -> str:
    return {"preFilter": "pre_filter"}.get(point, point)


def test_an_error_that_no_plugin_raised_is_a_fault_of_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    core = core_with(Failing(""))
    core.handle(PodChanged(0, None, pending()))
    monkeypatch.setattr(core.cluster.nominations, "of", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        core.handle(CycleDue(0))
