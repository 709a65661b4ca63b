"""Whatever a plugin of another package raises, answers or waits for, the scheduler goes on."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from corelane.kube.client import KubeClient
from corelane.reasons import Code, Reason
from corelane.scheduler.binding import binder
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.daemon.metrics import SchedulerMetrics
from corelane.scheduler.daemon.scheduler import Scheduler, SchedulerReporter
from corelane.scheduler.events import (
    BindFailed,
    BindRequested,
    BindSucceeded,
    PodChanged,
    PreBindFailed,
)
from corelane.scheduler.framework.changes import ChangeKind
from corelane.scheduler.framework.plugin import Depends, NodeReason, NotNominated, Rejection, Scope, Wait
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.instructions import Bind, SetCondition
from corelane.scheduler.plugins import default
from support.core_lab import CoreLab, conditions, names, profile_with
from support.pods import container, pod

CPUS = 8
"""Of a node."""
RIGHT: dict[str, Any] = {
    "pre_enqueue": None,
    "sort_key": (0, ""),
    "pre_filter": None,
    "idle": False,
    "filter": None,
    "feasible": None,
    "rejections": None,
    "post_filter": NotNominated(""),
    "pre_score": None,
    "score": 1.0,
    "scores": None,
    "normalize": None,
    "reserve": None,
    "unreserve": None,
    "permit": None,
    "pre_bind_work": None,
    "hints": {},
}
"""Methods of plugins that the core calls, and an answer; None also for those that are made by arguments."""
WRONG: dict[str, list[Any]] = {
    "pre_enqueue": ["no", Rejection("Other", ("why",))],  # type: ignore[arg-type]
    "sort_key": [None, (), 5, ("text",), (1j,), (0, 5), (0, None)],
    "pre_filter": [False, "no", Rejection.of("Other", Reason(Code.PORTS_TAKEN)).reasons],
    "filter": [
        True,
        "no room",
        Rejection("Other", ("why",)),  # type: ignore[arg-type]
        Rejection("Other", "why"),  # type: ignore[arg-type]
        Rejection("Other", (NodeReason(Reason(Code.INSUFFICIENT_RESOURCE, ())),)),
        Rejection("Other", (NodeReason(Reason(Code.POD_INVALID, ([],))),)),  # type: ignore[arg-type]
    ],
    "feasible": [None, True, np.ones(99, np.bool_), np.array(["a"])],
    "rejections": [5, ["no"], [("no", [0])], [(Rejection.of("Other", Reason(Code.PORTS_TAKEN)), [77])]],
    "post_filter": [None, "a", (1,)],
    "pre_score": ["x"],
    "score": [None, "high", float("nan"), [1]],
    "scores": [None, 1.0, np.array([float("inf")]), np.ones(99)],
    "normalize": [None, np.ones(99), np.array([None])],
    "reserve": ["no", True],
    "permit": [30, "wait", Wait("long"), Wait(float("nan"))],  # type: ignore[arg-type]
    "pre_bind_work": ["x", 5],
    "hints": [None, ["x"], {"x": 1}],
}
FATAL_TO_A_POD = RIGHT.keys() - {"sort_key", "unreserve", "hints", "idle"}
"""Methods whose errors end the attempt; `pre_enqueue` keeps the pod gated."""


@dataclass
class Plugin:
    """Has one method beside those that it needs; it fails for pods with a label while `broken`."""

    name = "Other"
    scope = Scope.CLUSTER
    exact = True
    fail: Callable[[], Any]
    broken: bool = True
    undone: list[str] = field(default_factory=list)


def plugin_with(method: str, fail: Callable[[], Any]) -> Plugin:
    """A plugin that has the method, with those beside which it is called."""
    beside = {
        "normalize": ["score"],
        "scores": ["score"],
        "pre_score": ["score"],
        "unreserve": ["reserve"],
        "reserve": ["unreserve"],
        "feasible": ["filter"],
        "rejections": ["filter", "feasible"],
        "idle": ["pre_filter"],
        "pre_bind_work": ["pre_bind"],
    }
    return made_of([method, *beside.get(method, [])], method, fail)


def made_of(methods: list[str], failing: str, fail: Callable[[], Any]) -> Plugin:
    there = {one: _method(one, fails=one == failing) for one in methods}
    return type("Made", (Plugin,), there)(fail)


def _method(name: str, *, fails: bool) -> Callable[..., Any]:
    def call(self: Plugin, *arguments: Any) -> Any:
        if fails and self.broken:
            return self.fail()
        if name == "unreserve":
            self.undone.append(arguments[1])
        if name == "filter" and self.broken and self.fail is _rejects:
            return Rejection.of("Other", Reason(Code.PORTS_TAKEN))
        match name:
            case "feasible":
                return np.full(len(arguments[-1]), self.fail is not _rejects or not self.broken)
            case "scores":
                return np.ones(len(arguments[-1]))
            case "normalize":
                return arguments[-1]
        return RIGHT.get(name)

    return call


def _rejects() -> Any:
    raise KeyError("rejections")


def raising() -> Any:
    raise KeyError("example.com/rack")


class World(CoreLab):
    """A core with two nodes and the plugin."""

    def __init__(self, plugin: Any) -> None:
        self.faults: list[tuple[str, str, str]] = []
        self.metrics, self.plugin = SchedulerMetrics(clock=lambda: 0.0), plugin
        self.metrics.plugin_failed = lambda *fault: self.faults.append(  # type: ignore[method-assign]
            (fault[0], fault[1], type(fault[2]).__name__)
        )
        core = SchedulerCore(profiles=(profile_of(plugin),), decisions=self.metrics)
        super().__init__("a", "b", core=core)

    def come(self, name: str, cpu: int = 1, **spec: Any) -> None:
        self.add(pod(name, container("x", f"cpu={cpu}", "")), **spec)

    def fails(self) -> SetCondition:
        """The one pod's attempt ends with an error."""
        (condition,) = conditions(self.run())
        assert condition.reason == "SchedulerError"
        assert condition.message.startswith("plugin Other failed: ")
        return condition


def profile_of(plugin: Any) -> Profile:
    """A plugin that orders the queue comes before the usual one."""
    usual = profile_with(plugin)
    plugins = sorted(usual.plugins, key=lambda one: not (one is plugin and hasattr(plugin, "sort_key")))
    return Profile("s", tuple(plugins), usual.weights)


def recovers(world: World, method: str) -> None:
    """The pod is placed once the plugin works, for instance after it was corrected and its node changed."""
    world.plugin.broken = False
    world.has("c")
    assert names(world.run(400)) == ["p"], method


def reach(method: str, fail: Callable[[], Any]) -> World:
    """Have a pod come to the method."""
    plugin = plugin_with(method, fail)
    world = World(plugin)
    if method == "rejections":
        plugin.fail = _rejects if fail is raising else fail
    return world


CASES = [(method, "raises", raising) for method in RIGHT] + [
    (method, f"{answer!r:.40}", lambda answer=answer: answer) for method in WRONG for answer in WRONG[method]
]


@pytest.mark.parametrize(("method", "what", "fail"), CASES, ids=[f"{one[0]}-{one[1]}" for one in CASES])
def test_the_scheduler_goes_on(method: str, what: str, fail: Callable[[], Any]) -> None:
    if method in {"rejections", "post_filter"}:
        the_pod_fits_nowhere(method, fail)
        return
    world = reach(method, fail)
    world.come("p")
    done = world.run()
    if method == "unreserve":
        unreserve_fails(world)
        return
    if method in {"sort_key", "hints"}:
        assert names(done) == ["p"]
        return
    if method == "pre_enqueue":
        assert world.core.queue.counts() == {"gated": 1}
        assert "plugin failed" in next(iter(world.core.pending().values()))
    elif method == "idle" and what != "raises":
        assert names(done) == ["p"]
        return
    else:
        (condition,) = conditions(done)
        assert condition.reason == "SchedulerError"
        assert condition.message.startswith("plugin Other failed: ")
        assert 'attempts_total{profile="s",result="error"}' in world.metrics.text()
        assert not world.core.ready(world.now + 0.5)
    if method in {"reserve", "permit", "pre_bind_work"}:
        assert not world.core.bindings.holds("uid-p")
        assert world.core.cluster.node_of("uid-p") is None
    recovers(world, method)


def the_pod_fits_nowhere(method: str, fail: Callable[[], Any]) -> None:
    class Rejects(Plugin):
        def filter(self, cycle: Any, node: Any) -> Any:
            return Rejection.of("Other", Reason(Code.PORTS_TAKEN)) if self.broken else None

    there: dict[str, Any] = {method: _method(method, fails=True)}
    if method == "rejections":
        there["feasible"] = lambda self, cycle, columns, rows: np.full(len(rows), not self.broken)
    world = World(type("Made", (Rejects,), there)(fail))
    world.come("p")
    world.fails()
    recovers(world, method)


def unreserve_fails(world: World) -> None:
    """The other plugins undo their part, once; it is said once."""
    core, plugin = world.core, world.plugin
    others: list[str] = []
    profile = core.profiles["s"]
    other = next(one for one in profile.reserves if one.name == "VolumeBinding")
    other.unreserve = lambda pod, node: others.append(node)  # type: ignore[method-assign]
    for number in range(2):
        core.handle(BindFailed(world.now, "uid-p", "rejected", "no"))
        assert len(others) == number + 1
        assert core.cluster.node_of("uid-p") is None
        assert names(world.run(20)) == ["p"]
    assert world.faults == [("Other", "unreserve", "KeyError")]
    core.handle(PodChanged(world.now, core.bindings["uid-p"].bind.pod, None))
    assert len(others) == 3
    assert not plugin.undone


@pytest.mark.parametrize("answer", [*WRONG["sort_key"], raising])
def test_pods_whose_sort_key_fails_come_last_by_priority(answer: Any) -> None:
    """The first key says what keys are like."""

    class Sorts(Plugin):
        def sort_key(self, pod: PodInfo) -> Any:
            if pod.pod.metadata.name.startswith("bad"):
                return answer() if callable(answer) else answer
            return (-pod.pod.spec.priority, pod.pod.metadata.name)

    world = World(Sorts(raising))
    for name, priority in (("good1", 0), ("bad1", 5), ("bad2", 9), ("good2", 3)):
        world.come(name, priority=priority)
    assert names(world.run()) == ["good2", "good1", "bad2", "bad1"]
    assert len(world.faults) == 1


class OfRows(Plugin):
    """All forms of a Filter and a Score that look at one node; `failing` is the method that fails."""

    scope = Scope.ROW
    failing = ""

    def _said(self, method: str, right: Any) -> Any:
        return self.fail() if self.broken and method == self.failing else right

    def filter(self, cycle: Any, node: Any) -> Any:
        return self._said("filter", None)

    def feasible(self, cycle: Any, columns: Any, rows: Any) -> Any:
        return self._said("feasible", np.ones(len(rows), np.bool_))

    def score(self, cycle: Any, node: Any) -> Any:
        return self._said("score", 1.0)

    def scores(self, cycle: Any, columns: Any, rows: Any) -> Any:
        return self._said("scores", np.ones(len(rows)))


class OfAmounts(OfRows):
    depends = Depends.PODS

    def passes_kind(self, cycle: Any, kind: Any) -> Any:
        return self._said("passes_kind", True)

    def score_of_kind(self, cycle: Any, kind: Any) -> Any:
        return self._said("score_of_kind", 1.0)


class OfStates(OfRows):
    depends = Depends.CPUS
    exact = False

    def room(self, cycle: Any, columns: Any, rows: Any) -> Any:
        return self._said("room", np.ones(len(rows), np.bool_))

    def room_of_kind(self, cycle: Any, kind: Any) -> Any:
        return self._said("room_of_kind", True)

    def for_state(self, cycle: Any, rejection: Any) -> Any:
        return self._said("for_state", False)


def _without_truth() -> Any:
    return np.ones(2)


@pytest.mark.parametrize(
    ("made", "method", "fail"),
    [
        *((OfAmounts, one, raising) for one in ("feasible", "scores", "passes_kind", "score_of_kind")),
        (OfAmounts, "passes_kind", _without_truth),
        (OfAmounts, "score_of_kind", lambda: "high"),
        (OfAmounts, "scores", lambda: np.ones(99)),
        *(
            (OfStates, one, raising)
            for one in ("feasible", "scores", "filter", "score", "room", "room_of_kind")
        ),
        (OfStates, "room", lambda: None),
        (OfStates, "filter", lambda: "no"),
        (OfStates, "score", lambda: None),
    ],
)
def test_forms_over_rows_and_kinds_end_attempts_only(
    made: type[OfRows], method: str, fail: Callable[[], Any]
) -> None:
    plugin = made(fail)
    world = World(plugin)
    if made is OfAmounts or method.startswith("room"):  # Answers for states are kept.
        world.come("first")
        assert names(world.run()) == ["first"]
    plugin.failing = method
    world.has("d")
    for name in ("p", "q"):
        world.come(name)
    failed = conditions(world.run())
    assert failed
    for condition in failed:
        assert condition.reason == "SchedulerError"
        assert condition.message.startswith("plugin Other failed: ")
    plugin.broken = False
    assert {condition.pod.metadata.name for condition in failed} <= set(names(world.run(400)))


def test_a_word_about_a_state_that_fails_ends_the_attempt() -> None:
    plugin = OfStates(raising)
    plugin.failing = "for_state"
    plugin.filter = lambda cycle, node: Rejection.of("Other", Reason(Code.PORTS_TAKEN))  # type: ignore[method-assign]
    world = World(plugin)
    world.come("p")
    assert world.fails().message.startswith("plugin Other failed: KeyError")


@pytest.mark.parametrize("method", ["add_pod", "remove_pod"])
def test_pods_thought_added_and_away_end_the_attempt(method: str) -> None:
    """Victims are thought away for `p`, which is thought to be on its nominated node for `q`."""

    class Counts(Plugin):
        def pre_filter(self, cycle: Any) -> None:
            cycle.state["Other"] = {}

        def filter(self, cycle: Any, node: Any) -> None:
            return None

        def add_pod(self, cycle: Any, pod: Any, node: Any) -> None:
            if method == "add_pod":
                self.fail()

        def remove_pod(self, cycle: Any, pod: Any, node: Any) -> None:
            if method == "remove_pod":
                self.fail()

    world = World(Counts(raising))
    world.lose("b")
    world.come("there", cpu=CPUS - 1, node_name="a")
    world.come("p", cpu=CPUS - 1, priority=10)
    (first,) = conditions(world.run())
    assert first.reason == ("SchedulerError" if method == "remove_pod" else "Unschedulable")
    world.come("q")
    if method == "add_pod":
        (second,) = [one for one in conditions(world.run()) if one.pod.metadata.name == "q"]
        assert second.message.startswith("plugin Other failed: KeyError")


def test_what_fails_for_the_record_alone_is_reported_once() -> None:
    class Details(Plugin):
        def score(self, cycle: Any, node: Any) -> float:
            return 1.0

        def details(self, cycle: Any, node: Any) -> Any:
            return raising()

    world = World(Details(raising))
    attempted = world.metrics.attempted
    world.metrics.attempted = lambda now, waiting, attempt: (  # type: ignore[method-assign]
        attempted(now, waiting, attempt),
        attempt.terms(attempt.ranked),
    )
    for name in ("p", "q"):
        world.come(name)
    assert names(world.run()) == ["p", "q"]
    assert world.faults == [("Other", "explain", "KeyError")]


def test_a_hint_that_fails_counts_as_a_change_that_helps() -> None:
    class Rejects(Plugin):
        def filter(self, cycle: Any, node: Any) -> Any:
            return Rejection.of("Other", Reason(Code.PORTS_TAKEN)) if self.broken else None

        def hints(self) -> Any:
            return {ChangeKind.NODE_ADDED: lambda pod, change: raising()}

    world = World(Rejects(raising))
    world.come("p")
    assert not names(world.run())
    world.plugin.broken = False
    world.has("c")
    assert names(world.run(20)) == ["p"]


def test_a_permit_plugin_that_cannot_keep_the_function_is_reported() -> None:
    class Decides(Plugin):
        def permit(self, cycle: Any, node: Any) -> None:
            return None

        def decides_with(self, decide: Any) -> None:
            raising()

    failed: list[tuple[str, str]] = []

    class Reporter(SchedulerReporter):
        def plugin_failed(self, plugin: str, what: str, error: Exception) -> None:
            failed.append((plugin, what))

    async def main() -> None:
        client = KubeClient.connect_to("http://127.0.0.1:1")
        Scheduler(client, profile=profile_of(Decides(raising)), reporter=Reporter())._give_permits()
        await client.close()

    asyncio.run(main())
    assert failed == [("Other", "decides_with")]


def test_a_pod_of_another_scheduler_is_refused() -> None:
    for method in ("filter", "reserve", "permit", "pre_bind_work"):
        world = reach(method, raising)
        one = pod("p", container("x", "cpu=1", ""))
        core = world.core
        assert core.handle(BindRequested(0, one, "a", core.profiles["s"])) == []
        assert core.cluster.node_of("uid-p") is None
        world.plugin.broken = False
        assert names(core.handle(BindRequested(0, one, "a", core.profiles["s"]))) == ["p"]


def test_states_that_cannot_be_copied_end_the_attempt() -> None:
    class State:
        def copy(self) -> Any:
            raise RuntimeError("no copy")

    class Keeps(Plugin):
        def pre_filter(self, cycle: Any) -> None:
            cycle.state["Other"] = State()

        def filter(self, cycle: Any, node: Any) -> None:
            return None

    world = World(Keeps(raising))
    for node in ("a", "b"):
        world.come(f"on-{node}", cpu=CPUS, node_name=node)
    world.come("p", cpu=CPUS, priority=10)
    assert "no copy" in world.fails().message


@pytest.mark.parametrize("method", ["reserve", "filter"])
def test_the_condition_names_where_the_error_was_raised(method: str) -> None:
    world = reach(method, raising)
    world.come("p")
    where = "(scheduler/test_failing_plugins.py"
    assert world.fails().message.startswith(f"plugin Other failed: KeyError: 'example.com/rack' {where}")


def test_a_pre_filter_that_a_profile_disables_alone_ends_attempts_with_the_plugins_name() -> None:
    """As in kube-scheduler, whose Filter finds no state then."""
    usual = default.profile("s")
    points = {
        "preFilter": tuple(one for one in usual.pre_filters if one.name != "PodTopologySpread"),
        "filter": usual.filters,
    }
    lab = CoreLab("a", profiles=(Profile("s", usual.plugins, usual.weights, points=points),))
    (condition,) = conditions(lab.place(pod("p", container("x", "cpu=1", ""))))
    assert condition.reason == "SchedulerError"
    assert condition.message.startswith("plugin PodTopologySpread failed: KeyError")


def test_an_error_that_no_plugin_raised_is_a_fault_of_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = CoreLab("a")
    monkeypatch.setattr(lab.core.cluster.nominations, "of", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        lab.place(pod("p", container("x", "cpu=1", "")))


# The extension points that do I/O.


class Sent:
    """A binder with one plugin, and what it tells the core."""

    def __init__(self, **methods: Any) -> None:
        self.plugin = type("Made", (Plugin,), methods)(raising)
        self.told: list[Any] = []
        self.of_plugin = Profile("s", (self.plugin,))
        client = KubeClient.connect_to("http://127.0.0.1:1")
        self.binder = binder.Binder(client, self, workers=1)

    def handle(self, event: Any) -> None:
        self.told.append(event)

    def unsendable(self, bind: Bind) -> str:
        return ""

    def profile(self, scheduler_name: str) -> Profile:
        return self.of_plugin

    async def binds(self, number: int, work: tuple[Any, ...] = ()) -> list[type]:
        running = asyncio.create_task(self.binder.run())
        for one in range(number):
            info = pod(f"p{one}", container("x", "cpu=1", ""))
            self.binder.put(Bind(info, "a", {}, work=work))
        await self.binder.wait_idle()
        running.cancel()
        return [type(one) for one in self.told]


class Work:
    plugin = "Other"


async def _cancelled(*_: Any) -> Any:
    asyncio.get_running_loop().create_future().cancel()
    raise asyncio.CancelledError


async def _raises(*_: Any) -> Any:
    raise KeyError("x")


async def _never(*_: Any) -> Any:
    await asyncio.get_running_loop().create_future()


async def _true(*_: Any) -> bool:
    return True


def _number(*_: Any) -> Any:
    return 5


@pytest.mark.parametrize("fails", [_raises, _cancelled, _number, raising])
def test_bindings_go_on_after_a_plugin_that_fails(fails: Any) -> None:
    assert asyncio.run(Sent(bind=fails).binds(3)) == [BindFailed] * 3
    assert asyncio.run(Sent(bind=_true, post_bind=fails).binds(3)) == [BindSucceeded] * 3
    sent = Sent(bind=_true, pre_bind=fails, pre_bind_work=lambda *_: None)
    assert asyncio.run(sent.binds(3, (Work(),))) == [PreBindFailed] * 3


def test_plugins_that_never_return_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binder, "PLUGIN_SECONDS", 0.01)
    assert asyncio.run(Sent(bind=_never).binds(2)) == [BindFailed] * 2
    assert asyncio.run(Sent(bind=_true, post_bind=_never).binds(2)) == [BindSucceeded] * 2


def test_a_pre_bind_that_never_returns_ends_with_its_pod() -> None:
    async def story() -> list[type]:
        sent = Sent(bind=_true, pre_bind=_never, pre_bind_work=lambda *_: None)
        running = asyncio.create_task(sent.binder.run())
        sent.binder.put(Bind(pod("p", container("x", "cpu=1", "")), "a", {}, work=(Work(),)))
        await asyncio.sleep(0.01)
        assert sent.binder.stop_preparing("uid-p", "the pod was deleted")
        await sent.binder.wait_idle()
        running.cancel()
        return [type(one) for one in sent.told]

    assert asyncio.run(story()) == [PreBindFailed]
