"""Carrying out bindings: what each answer proves, plugins around a binding, and the order of writes."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace

from corelane import node as nodes
from corelane.kube import translate
from corelane.kube.client import APIError, KubeClient
from corelane.scheduler.binding.binder import Binder, BinderReporter
from corelane.scheduler.daemon.pod_status_writer import PodStatusWriter, WriteReporter
from corelane.scheduler.events import (
    BindFailed,
    BindSucceeded,
    LookUpFailed,
    PodLookedUp,
    PreBindFailed,
    SchedulerEvent,
)
from corelane.scheduler.framework.plugin import BindContext, PreBindError
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.instructions import (
    Bind,
    LookUpPod,
    NearestNode,
    RecordPodEvent,
    SetCondition,
    SetNominatedNode,
)
from corelane.scheduler.plugins.simple import DefaultBinder
from support import objects
from support.fake_api import Answer, Fake, answer, failure, serving, watching
from support.fake_api import pod as served_pod
from support.pods import guaranteed

BINDING = "/api/v1/namespaces/ns/pods/a/binding"
POD = "/api/v1/namespaces/ns/pods/a"
SUCCESS = answer({"kind": "Status", "status": "Success"}, status=201)


@dataclass(frozen=True)
class Work:
    plugin: str
    claim: str = ""


class Plugin:
    """Does at each extension point what its functions do."""

    name = "Volumes"

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.error: Exception | None = None
        self.binds = False

    def pre_bind_work(self, cycle: object, node: object) -> Work | None:
        return None

    async def pre_bind(self, context: BindContext, work: Work) -> None:
        self.calls.append(f"pre_bind {work.claim} on {context.node}")
        if self.error:
            raise self.error

    async def bind(self, context: BindContext) -> bool:
        self.calls.append("bind")
        return self.binds

    async def post_bind(self, context: BindContext) -> None:
        self.calls.append("post_bind")
        if self.error:
            raise self.error


class Log(BinderReporter):
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.points: list[tuple[str, str, str]] = []
        """Pod, extension point and status."""

    def bind_dropped(self, pod: Any, node: str, why: str) -> None:
        self.lines.append(why)

    def plugin_failed(self, plugin: str, what: str, error: Exception) -> None:
        self.lines.append(f"{plugin}.{what}: {error}")

    def ran(self, pod: Any, point: str, seconds: float, status: str) -> None:
        assert seconds >= 0
        self.points.append((pod.metadata.name, point, status))


class Lab:
    """A binder before a server that misbehaves."""

    def __init__(self, fake: Fake, client: KubeClient, profile: Profile, why: str, workers: int) -> None:
        self.fake, self.client, self.log = fake, client, Log()
        self.events: asyncio.Queue[SchedulerEvent] = asyncio.Queue()
        self._profile, self._why = profile, why
        self.binder = Binder(client, self, reporter=self.log, workers=workers)

    def handle(self, event: SchedulerEvent) -> None:
        self.events.put_nowait(event)

    def unsendable(self, bind: Bind) -> str:
        return self._why

    def profile(self, scheduler_name: str) -> Profile:
        return self._profile

    async def answered(self, instruction: Bind | LookUpPod) -> SchedulerEvent:
        self.binder.put(instruction)
        return await self.events.get()

    def paths(self) -> list[str]:
        return [request.path.rpartition("/")[2] for request in self.fake.seen]


@asynccontextmanager
async def running(
    plugin: Plugin | None = None, profile: Profile | None = None, unsendable: str = "", workers: int = 4
) -> AsyncIterator[Lab]:
    async with serving() as (fake, client):
        profile = profile or Profile(plugins=(*((plugin,) if plugin else ()), DefaultBinder()))
        lab = Lab(fake, client, profile, unsendable, workers)
        task = asyncio.create_task(lab.binder.run())
        try:
            yield lab
        finally:
            task.cancel()
            await asyncio.wait([task])


@pytest.fixture
def lab() -> AbstractAsyncContextManager[Lab]:
    return running()


def bind(name: str = "a", *work: Work) -> Bind:
    return Bind(guaranteed(name, "2"), "n1", {"key": "value"}, work=work)


ANSWERS = [
    (SUCCESS, "bound"),
    (answer({"kind": "Binding"}, status=201), "bound"),
    (answer(b"{", status=201), "unknown"),
    (answer(b"<html>", status=200), "unknown"),
    (watching(b'{"kind":"Sta', then="cut"), "unknown"),
    (failure(400, "BadRequest", "no"), "rejected"),
    (failure(403, "Forbidden", "no"), "rejected"),
    (failure(404, "NotFound", "no"), "rejected"),
    (failure(422, "Invalid", "no"), "rejected"),
    (answer(b"404 page not found", status=404), "unknown"),
    (answer(b"<html>", status=403), "unknown"),
    (failure(408, "Timeout", "no"), "unknown"),
    (failure(409, "Conflict", "no"), "conflict"),
    (failure(429, "TooManyRequests", "no"), "throttled"),
    (answer(b"slow down", status=429), "throttled"),
    (failure(500, "InternalError", "no"), "unknown"),
    (failure(502, "BadGateway", "no"), "unknown"),
    (failure(504, "Timeout", "no"), "unknown"),
]


@pytest.mark.parametrize(("given", "expected"), ANSWERS)
async def test_only_an_answer_that_proves_failure_rejects_a_binding(
    lab: Lab, given: Answer, expected: str
) -> None:
    lab.fake.script[BINDING] = [given]
    event = await lab.answered(bind())
    assert event.uid == "uid-a"  # type: ignore[union-attr]
    assert isinstance(event, BindSucceeded) == (expected == "bound")
    assert expected == "bound" or (isinstance(event, BindFailed) and event.outcome == expected)


async def test_a_binding_carries_annotations(lab: Lab) -> None:
    lab.fake.script[BINDING] = [SUCCESS]
    await lab.answered(bind())
    assert b'"annotations":{"key":"value"}' in lab.fake.bodies[0]


async def test_a_wait_that_the_server_asks_for_is_passed_on(lab: Lab) -> None:
    async def busy(request: web.Request) -> web.StreamResponse:
        return web.Response(status=429, text="Too many requests", headers={"Retry-After": "3"})

    lab.fake.script[BINDING] = [busy]
    event = await lab.answered(bind())
    assert isinstance(event, BindFailed)
    assert (event.outcome, event.retry_after) == ("throttled", 3)


async def test_a_binding_that_must_not_be_sent_any_more_is_not() -> None:
    async with running(unsendable="node n1 was deleted") as lab:
        event = await lab.answered(bind())
        assert isinstance(event, BindFailed)
        assert (event.outcome, event.message) == ("rejected", "node n1 was deleted")
        assert lab.fake.seen == []
        assert lab.log.lines == ["node n1 was deleted"]


@pytest.mark.parametrize(
    ("given", "node"),
    [
        (answer(served_pod("a", uid="uid-a", nodeName="n2")), "n2"),
        (answer(served_pod("a", uid="uid-a")), ""),
        (answer(served_pod("a", uid="another", nodeName="n2")), None),
        (failure(404, "NotFound", "no"), None),
    ],
)
async def test_a_pod_is_looked_up_by_its_uid(lab: Lab, given: Answer, node: str | None) -> None:
    lab.fake.script[POD] = [given]
    event = await lab.answered(LookUpPod(guaranteed("a", "2")))
    assert isinstance(event, PodLookedUp)
    assert (event.pod.spec.node_name if event.pod else None) == node


@pytest.mark.parametrize("given", [answer(b"404 page not found", status=404), failure(500, "", "no")])
async def test_a_look_up_without_the_servers_own_answer_proves_nothing(lab: Lab, given: Answer) -> None:
    lab.fake.script[POD] = [given]
    assert isinstance(await lab.answered(LookUpPod(guaranteed("a", "2"))), LookUpFailed)


async def test_plugins_run_before_and_after_a_binding() -> None:
    plugin = Plugin()

    async with running(plugin) as lab:
        lab.fake.script[BINDING] = [SUCCESS]
        assert isinstance(await lab.answered(bind("a", Work("Volumes", "data"))), BindSucceeded)
        await lab.binder.wait_idle()
        assert plugin.calls == ["pre_bind data on n1", "bind", "post_bind"]


async def test_a_plugin_may_bind_in_place_of_the_scheduler() -> None:
    plugin = Plugin()
    plugin.binds = True

    async with running(plugin) as lab:
        assert isinstance(await lab.answered(bind()), BindSucceeded)
        assert lab.fake.seen == []


async def test_a_pod_that_no_plugin_binds_is_rejected_for_certain() -> None:
    async with running(profile=Profile(plugins=(Plugin(),))) as lab:
        event = await lab.answered(bind())
        assert isinstance(event, BindFailed)
        assert event.outcome == "rejected"
        assert event.message == "no Bind plugin of profile corelane-scheduler took the pod: Volumes"
        assert lab.fake.seen == []
        assert lab.log.points == [("a", "PreBind", "Success"), ("a", "Bind", "Skip")]


@pytest.mark.parametrize("point", ["bind", "postBind"])
async def test_a_plugin_disabled_at_a_point_is_not_asked_there(point: str) -> None:
    plugin, binder = Plugin(), DefaultBinder()
    points = {"bind": (plugin, binder), "postBind": (plugin,)} | {point: (binder,)}

    async with running(profile=Profile(plugins=(plugin, binder), points=points)) as lab:
        lab.fake.script[BINDING] = [SUCCESS]
        assert isinstance(await lab.answered(bind()), BindSucceeded)
        await lab.binder.wait_idle()
    assert plugin.calls == (["post_bind"] if point == "bind" else ["bind"])


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PreBindError("claim ns/c: not bound after 600 s"), "claim ns/c: not bound after 600 s"),
        (APIError(403, "Forbidden", "no"), "no (403 Forbidden)"),
        (ZeroDivisionError("oops"), "ZeroDivisionError: oops"),
    ],
)
async def test_a_binding_whose_preparation_fails_is_not_sent(error: Exception, message: str) -> None:
    plugin = Plugin()
    plugin.error = error

    async with running(plugin) as lab:
        event = await lab.answered(bind("a", Work("Volumes")))
        assert isinstance(event, PreBindFailed)
        assert (event.plugin, event.message) == ("Volumes", message)
        assert lab.fake.seen == []


async def test_work_of_a_plugin_that_is_not_enabled_fails_the_binding(lab: Lab) -> None:
    event = await lab.answered(bind("a", Work("Missing")))
    assert isinstance(event, PreBindFailed)
    assert event.message == "the plugin is not enabled in the profile"


async def test_an_error_after_a_binding_changes_nothing() -> None:
    plugin = Plugin()
    plugin.error = ZeroDivisionError("oops")

    async with running(plugin) as lab:
        lab.fake.script[BINDING] = [SUCCESS]
        assert isinstance(await lab.answered(bind()), BindSucceeded)
        await lab.binder.wait_idle()
        assert lab.log.lines == ["Volumes.post_bind: oops"]


@pytest.mark.parametrize("work", [(), (Work("Volumes"),)])
@pytest.mark.parametrize(("given", "ok"), [(SUCCESS, True), (failure(500, "InternalError", "no"), False)])
async def test_every_extension_point_of_a_binding_is_reported(
    work: tuple[Work, ...], given: Answer, ok: bool
) -> None:
    async with running(Plugin()) as lab:
        lab.fake.script[BINDING] = [given]
        await lab.answered(bind("a", *work))
        await lab.binder.wait_idle()
        status = "Success" if ok else "Error"
        expected = [("a", "PreBind", "Success"), ("a", "Bind", status), ("a", "PostBind", "Success")]
        assert lab.log.points == expected[: 3 if ok else 2]


@pytest.mark.parametrize("post", [True, False])
async def test_an_extension_point_fails_as_its_plugins_do(post: bool) -> None:
    """As upstream: PreBind with an error, PostBind never; what comes after it has not run."""
    plugin = Plugin()
    plugin.error = ZeroDivisionError("oops")

    async with running(plugin) as lab:
        lab.fake.script[BINDING] = [SUCCESS]
        await lab.answered(bind("a") if post else bind("a", Work("Volumes")))
        await lab.binder.wait_idle()
        all_ran = [("a", "PreBind", "Success"), ("a", "Bind", "Success"), ("a", "PostBind", "Success")]
        assert lab.log.points == (all_ran if post else [("a", "PreBind", "Error")])


async def test_a_stopped_preparation_is_a_failed_pre_bind_and_an_unsendable_binding_runs_no_bind() -> None:
    class Slow(Plugin):
        async def pre_bind(self, context: BindContext, work: Work) -> None:
            await asyncio.Event().wait()

    async with running(Slow()) as lab:
        lab.binder.put(bind("a", Work("Volumes")))
        await asyncio.sleep(0.01)
        lab.binder.stop_preparing("uid-a", "preempted by pod x")
        await lab.binder.wait_idle()
        assert lab.log.points == [("a", "PreBind", "Error")]

    async with running(unsendable="the lease is lost") as lab:
        await lab.answered(bind("a"))
        assert lab.log.points == [("a", "PreBind", "Success")]


async def test_slow_preparations_take_no_worker() -> None:
    release = asyncio.Event()

    class Slow(Plugin):
        async def pre_bind(self, context: BindContext, work: Work) -> None:
            await release.wait()

    async with running(Slow(), workers=1) as lab:
        lab.fake.script[BINDING] = [SUCCESS]
        lab.fake.script["/api/v1/namespaces/ns/pods/b/binding"] = [SUCCESS]
        for _ in range(50):
            lab.binder.put(bind("a", Work("Volumes")))
        event = await lab.answered(bind("b"))
        assert event.uid == "uid-b"  # type: ignore[union-attr]
        assert lab.binder.unfinished == 50
        release.set()
        for _ in range(50):
            assert isinstance(await lab.events.get(), BindSucceeded)
        await lab.binder.wait_idle()


async def test_bindings_in_order_go_one_by_one_to_a_node_and_keep_no_other_node_waiting(lab: Lab) -> None:
    def ordered(name: str, node: str = "n1") -> Bind:
        return replace(bind(name), node=node, in_order=True)

    held = asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        await held.wait()
        return await failure(403, "Forbidden", "no")(request)

    path = "/api/v1/namespaces/ns/pods/{}/binding"
    lab.fake.script[path.format("a")] = [slow]
    for name in "bcde":
        lab.fake.script[path.format(name)] = [SUCCESS]
    for one in (ordered("a"), ordered("b"), ordered("c"), ordered("d", "n2"), bind("e")):
        lab.binder.put(one)
    assert {(await lab.events.get()).uid for _ in range(2)} == {"uid-d", "uid-e"}  # type: ignore[union-attr]
    assert lab.binder.unfinished == 3
    held.set()
    await lab.binder.wait_idle()
    done = [lab.events.get_nowait() for _ in range(3)]
    assert [one.uid for one in done] == ["uid-a", "uid-b", "uid-c"]  # type: ignore[union-attr]
    assert isinstance(await lab.answered(ordered("e")), BindSucceeded)


async def test_bindings_go_before_events_and_conditions(lab: Lab) -> None:
    held = asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        await held.wait()
        return await SUCCESS(request)

    lab.fake.script[BINDING] = [slow]
    lab.fake.script["/api/v1/namespaces/ns/events"] = [answer({})]
    writer = PodStatusWriter(lab.client, "s", WriteReporter(), lab.binder)
    writing = asyncio.create_task(writer.run())
    writer.put(RecordPodEvent(guaranteed("a", "2"), "Normal", "Scheduled", "yes"))
    for _ in range(8):
        lab.binder.put(bind())
    held.set()
    await lab.binder.wait_idle()
    while "events" not in lab.paths():
        await asyncio.sleep(0.01)
    assert lab.paths().index("events") >= 5, "four workers had the last bindings in their hands"
    writing.cancel()


# Conditions.


async def test_an_event_says_what_would_help_on_the_nearest_node(lab: Lab) -> None:
    state = objects.state("core:4")
    state, _ = nodes.admit(state, translate.request(guaranteed("x", "3")))
    pod = guaranteed("a", "3")
    nearest = NearestNode("n1", state, translate.request(pod))
    written = asyncio.get_running_loop().create_future()

    async def created(request: web.Request) -> web.StreamResponse:
        written.set_result((await request.json())["message"])
        return await answer({})(request)

    lab.fake.script["/api/v1/namespaces/ns/events"] = [created]
    writer = PodStatusWriter(lab.client, "s", WriteReporter(), lab.binder)
    writing = asyncio.create_task(writer.run())
    writer.put(RecordPodEvent(pod, "Warning", "FailedScheduling", "why", nearest))
    assert await written == "why Nearest is n1: move ns/x off CPUs 1-3."
    writing.cancel()


async def written(lab: Lab, *notes: SetCondition, bound: str = "") -> list[str]:
    """What the server got, once all notes are written or dropped."""
    failed: list[str] = []

    class Reporter(WriteReporter):
        def dropped(self, what: str) -> None:
            failed.append(what)

        def write_failed(self, what: str, error: APIError) -> None:
            failed.append(f"{what}: {error}")

    writer = PodStatusWriter(lab.client, "s", Reporter(), lab.binder)
    for note in notes:
        writer.put(note)
    if bound:
        writer.being_bound(bound)
    task = asyncio.create_task(writer.run())
    await asyncio.sleep(0.3)
    task.cancel()
    return [f"{request.method} {request.path}" for request in lab.fake.seen] + failed


def condition(version: str = "7", message: str = "why") -> SetCondition:
    pod = guaranteed("a", "2")
    pod = replace(pod, metadata=replace(pod.metadata, resource_version=version))
    return SetCondition(pod, "Unschedulable", message)


async def test_a_condition_is_written_only_to_the_pod_as_it_was_seen(lab: Lab) -> None:
    lab.fake.script[f"{POD}/status"] = [answer({})]
    assert await written(lab, condition()) == [f"PATCH {POD}/status"]
    assert b'"resourceVersion":"7"' in lab.fake.bodies[0]


async def test_a_condition_that_waits_is_dropped_when_its_pod_is_being_bound(lab: Lab) -> None:
    assert await written(lab, condition(), bound="uid-a") == []


async def test_of_several_conditions_the_newest_is_written(lab: Lab) -> None:
    lab.fake.script[f"{POD}/status"] = [answer({})]
    assert len(await written(lab, condition(message="first"), condition(message="second"))) == 1
    assert b"second" in lab.fake.bodies[0]


@pytest.mark.parametrize("spec", [{"nodeName": "n1"}, {}])
async def test_a_condition_refused_for_a_change_is_written_again_only_without_a_node(
    lab: Lab, spec: dict[str, str]
) -> None:
    lab.fake.script[f"{POD}/status"] = [failure(409, "Conflict", "changed"), answer({})]
    lab.fake.script[POD] = [answer(served_pod("a", "9", uid="uid-a", **spec))]
    again = [] if spec else [f"PATCH {POD}/status"]
    assert await written(lab, condition()) == [f"PATCH {POD}/status", f"GET {POD}", *again]
    assert spec or b'"resourceVersion":"9"' in lab.fake.bodies[-1]


async def test_a_condition_of_a_deleted_pod_is_not_an_error(lab: Lab) -> None:
    lab.fake.script[f"{POD}/status"] = [failure(404, "NotFound", "no")]
    assert await written(lab, condition()) == [f"PATCH {POD}/status"]


async def test_abandoned_preparations_leave_nothing_to_wait_for() -> None:
    class Slow(Plugin):
        async def pre_bind(self, context: BindContext, work: Work) -> None:
            await asyncio.Event().wait()

    async with running(Slow()) as lab:
        lab.binder.put(bind("a", Work("Volumes")))
        await asyncio.sleep(0)
        lab.binder.abandon_preparations()
        await lab.binder.wait_idle()
        assert lab.fake.seen == []


@pytest.mark.parametrize("under_way", [True, False])
async def test_stopped_preparations_are_answered_and_nothing_is_sent(under_way: bool) -> None:
    ended = []

    class Slow(Plugin):
        async def pre_bind(self, context: BindContext, work: Work) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(work.plugin)

    async with running(Slow()) as lab:
        if under_way:
            lab.binder.put(bind("a", Work("Volumes")))
            lab.binder.put(bind("b", Work("Volumes")))
            await asyncio.sleep(0.01)
        assert lab.binder.stop_preparing("uid-a", "preempted by pod x") is under_way
        if under_way:
            event = await lab.events.get()
            assert isinstance(event, PreBindFailed)
            assert (event.uid, event.plugin, event.message) == ("uid-a", "Volumes", "preempted by pod x")
            await asyncio.sleep(0.01)
            assert (ended, lab.binder.unfinished) == (["Volumes"], 1)
        assert not lab.binder.stop_preparing("uid-a", "again")
        assert lab.fake.seen == []


async def test_an_expected_node_is_written_alone_and_not_after_the_pod_was_bound(lab: Lab) -> None:
    lab.fake.script[f"{POD}/status"] = [answer({}), failure(409, "Conflict", "changed")]
    lab.fake.script[POD] = [answer(served_pod("a", "9", uid="uid-a", nodeName="n1"))]
    note = SetNominatedNode(guaranteed("a", "2"), "n1")
    assert await written(lab, note) == [f"PATCH {POD}/status"]
    assert json.loads(lab.fake.bodies[-1])["status"] == {"nominatedNodeName": "n1"}
    assert (await written(lab, note))[-2:] == [f"PATCH {POD}/status", f"GET {POD}"]
