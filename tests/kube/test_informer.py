import asyncio
import random
import time
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.kube.apierrors import APIError
from corelane.kube.client import KubeClient
from corelane.kube.decode import Listing, Malformed, WatchEvent
from corelane.kube.informer import Informer, InformerReporter, Mirror, ObjectChange
from corelane.kube.meta import Object, ObjectMeta
from corelane.kube.objects import NodeResourceTopology, NodeResourceTopologyV1Alpha1
from corelane.kube.pod import Pod
from support.fake_api import Fake, answer, event, failure, listing, pod, serving, watching

PODS = "/api/v1/pods"
WATCH = f"{PODS}?watch"


class Log(InformerReporter):
    def __init__(self) -> None:
        self.lists = 0
        self.bad: list[Malformed] = []
        self.gone: list[Malformed] = []
        self.errors: list[str] = []
        self.delays: list[float] = []
        self.recoveries = 0

    def listed(self, kind: type[Object], objects: int) -> None:
        self.lists += 1

    def malformed(self, bad: Malformed) -> None:
        self.bad.append(bad)

    def malformed_gone(self, bad: Malformed) -> None:
        self.gone.append(bad)

    def retrying(self, kind: type[Object], error: APIError, seconds: float) -> None:
        self.errors.append(error.reason)
        self.delays.append(seconds)

    def recovered(self, kind: type[Object]) -> None:
        self.recoveries += 1


class Watched:
    """An informer at work, what it said, and a way to wait for its news."""

    def __init__(self, client: KubeClient, quiet_seconds: float = 70) -> None:
        self.log = Log()
        self.news: asyncio.Queue[str] = asyncio.Queue()
        self.informer = Informer(
            client,
            Pod,
            handler=lambda change: self.news.put_nowait(told(change)),
            reporter=self.log,
            rng=random.Random(1),
            sleep=lambda _: asyncio.sleep(0.001),
            quiet_seconds=quiet_seconds,
        )

    async def next(self, count: int) -> list[str]:
        return [await self.news.get() for _ in range(count)]


def told(change: ObjectChange[Pod]) -> str:
    known = change.new or change.old
    assert known is not None
    sign = "+" if change.old is None else "-" if change.new is None else "~"
    return f"{sign}{known.metadata.name}@{known.metadata.resource_version}"


def run(story: Callable[[Fake, Watched], Awaitable[None]], quiet_seconds: float = 70) -> None:
    async def main() -> None:
        async with asyncio.timeout(120), serving() as (fake, client):
            watched = Watched(client, quiet_seconds)
            task = asyncio.create_task(watched.informer.run())
            try:
                await story(fake, watched)
            finally:
                task.cancel()
                await asyncio.wait([task])
                assert task.cancelled()

    asyncio.run(main())


def test_lists_and_then_follows() -> None:
    async def story(fake: Fake, watched: Watched) -> None:
        fake.script[PODS] = [listing(pod("a"), pod("b"), version="5")]
        changes = (
            event("MODIFIED", pod("a", "6")) + event("DELETED", pod("b", "7")) + event("ADDED", pod("c", "8"))
        )
        fake.script[WATCH] = [watching(changes)]
        await watched.informer.synced()
        assert await watched.next(5) == ["+a@1", "+b@1", "~a@6", "-b@7", "+c@8"]
        assert [key[1] for key in watched.informer.objects] == ["a", "c"]
        assert fake.seen[1].query["resourceVersion"] == "5"

    run(story)


@pytest.mark.parametrize("how", ["status", "event"])
def test_when_the_version_is_gone_the_difference_is_replayed(how: str) -> None:
    async def story(fake: Fake, watched: Watched) -> None:
        gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
        ways = {"status": failure(410, "Expired", "too old"), "event": watching(event("ERROR", gone))}
        reborn = pod("d", "9", uid="another")
        fake.script[PODS] = [
            listing(pod("a"), pod("b"), pod("c"), pod("d"), version="5"),
            listing(pod("a"), pod("c", "8"), reborn, pod("e", "9"), version="9"),
        ]
        fake.script[WATCH] = [ways[how], watching()]
        await watched.next(4)
        assert await watched.next(5) == ["-b@1", "~c@8", "-d@1", "+d@9", "+e@9"]
        assert watched.log.errors == ["Expired"]
        assert sum("watch" not in request.query for request in fake.seen) == 2

    run(story)


def test_only_the_first_list_is_from_the_servers_cache() -> None:
    """A later one is to show at least what the watch before it showed."""

    async def main() -> None:
        async with asyncio.timeout(20), serving() as (fake, client):
            fake.script[PODS] = [listing(pod("a"), version="5"), listing(pod("b"), version="9")]
            fake.script[WATCH] = [failure(410, "Expired", "too old"), watching()]
            news = asyncio.Queue[str]()
            informer = Informer(
                client, Pod, handler=lambda change: news.put_nowait(told(change)), cached=True,
                sleep=lambda _: asyncio.sleep(0.001),
            )  # fmt: skip
            running = asyncio.create_task(informer.run())
            assert [await news.get() for _ in range(3)] == ["+a@1", "-a@1", "+b@1"]
            running.cancel()
            lists = [request.query for request in fake.seen if "watch" not in request.query]
            assert [query.get("resourceVersion") for query in lists] == ["0", None]

    asyncio.run(main())


def test_after_a_cut_the_watch_goes_on_from_the_last_whole_event_or_bookmark() -> None:
    async def story(fake: Fake, watched: Watched) -> None:
        bookmark = {"metadata": {"resourceVersion": "20"}, "spec": {"containers": None}}
        half = event("MODIFIED", pod("a", "7"))[:30]
        fake.script[PODS] = [listing(pod("a"), version="5")]
        fake.script[WATCH] = [
            watching(event("MODIFIED", pod("a", "6")), half, then="cut"),
            watching(event("BOOKMARK", bookmark), then="cut"),
            watching(event("DELETED", pod("a", "21"))),
        ]
        assert await watched.next(3) == ["+a@1", "~a@6", "-a@21"]
        assert [r.query["resourceVersion"] for r in fake.seen[1:]] == ["5", "6", "20"]
        assert watched.log.lists == 1

    run(story)


def test_a_silent_watch_is_renewed() -> None:
    async def story(fake: Fake, watched: Watched) -> None:
        fake.script[PODS] = [listing(version="5")]
        fake.script[WATCH] = [watching(), watching(event("ADDED", pod("a", "6")))]
        assert await watched.next(1) == ["+a@6"]
        assert watched.log.errors == ["Unreachable"]
        assert watched.log.recoveries == 1

    run(story, quiet_seconds=0.2)


def test_a_watch_of_a_kind_without_events_is_opened_again_at_once_without_a_failure() -> None:
    """kube-apiserver sends no bookmark about a kind that never had an event."""

    async def story(fake: Fake, watched: Watched) -> None:
        fake.script[PODS] = [listing(pod("a"), version="5")]
        fake.script[WATCH] = [watching(), watching(), watching(event("ADDED", pod("b", "6")))]
        assert await watched.next(2) == ["+a@1", "+b@6"]
        assert (watched.log.errors, watched.log.delays) == ([], [])

    run(story, quiet_seconds=1.2)


def test_failures_are_retried_ever_more_slowly_until_something_works() -> None:
    async def story(fake: Fake, watched: Watched) -> None:
        bad = answer(b"oops", 500)
        throttled = failure(429, "TooManyRequests", "later", retryAfterSeconds=50)
        fake.script[PODS] = [*[bad] * 9, throttled, listing(version="5")]
        fake.script[WATCH] = [bad, watching(event("ADDED", pod("a", "6")), then="cut"), watching()]
        await watched.next(1)
        while len(watched.log.delays) < 12:
            await asyncio.sleep(0.01)
        delays = watched.log.delays
        assert all(0.125 * 2**n <= delays[n] <= 0.25 * 2**n for n in range(7))
        assert 15 <= delays[8] <= 30
        assert delays[9] == 50
        assert delays[10] >= 15
        assert delays[11] <= 0.25

    run(story)


def test_a_watch_that_ends_at_once_does_not_spin() -> None:
    async def story(fake: Fake, watched: Watched) -> None:
        fake.script[PODS] = [listing(version="5")]
        fake.script[WATCH] = [watching(then="end")] * 3 + [watching()]
        while len(watched.log.delays) < 3:
            await asyncio.sleep(0.01)
        assert watched.log.delays[0] < watched.log.delays[1] < watched.log.delays[2]
        assert watched.log.lists == 1

    run(story)


def test_what_cannot_be_read_keeps_its_last_good_state() -> None:
    async def story(fake: Fake, watched: Watched) -> None:
        broken = pod("a", "6", containers=7)
        gone = event("ERROR", {"kind": "Status", "code": 410})
        fake.script[PODS] = [listing(pod("a"), version="5"), listing(broken, pod("b", "8"), version="9")]
        fake.script[WATCH] = [
            watching(event("MODIFIED", broken), gone),
            watching(event("DELETED", pod("a", "10", containers=7))),
        ]
        assert await watched.next(3) == ["+a@1", "+b@8", "-a@1"]
        assert [bad.name for bad in watched.log.bad] == ["a"]
        assert [bad.name for bad in watched.log.gone] == ["a"]

    run(story)


def test_what_remains_of_a_malformed_pod_replaces_it_where_asked_for() -> None:
    async def main() -> None:
        broken = pod("a", "6", nodeName="n", containers=[{"name": "c", "env": 7}])
        async with asyncio.timeout(20), serving() as (fake, client):
            fake.script[PODS] = [listing(pod("a"), version="5"), listing(broken, version="6")]
            gone = event("ERROR", {"kind": "Status", "code": 410})
            fake.script[WATCH] = [watching(event("MODIFIED", broken), gone), watching()]
            log, news = Log(), asyncio.Queue[str]()
            informer = Informer(
                client, Pod, handler=lambda change: news.put_nowait(told(change)), reporter=log,
                sleep=lambda _: asyncio.sleep(0.001), remainders=True,
            )  # fmt: skip
            running = asyncio.create_task(informer.run())
            assert [await news.get(), await news.get()] == ["+a@1", "~a@6"]
            assert informer.objects["ns", "a"].spec.node_name == "n"
            running.cancel()
            assert [bad.name for bad in log.bad] == ["a"]

    asyncio.run(main())


NAMES = st.sampled_from("abc")
STATES = st.dictionaries(NAMES, st.tuples(st.integers(1, 3), st.integers(1, 4)), max_size=3)


def known(name: str, uid: int, version: int) -> Pod:
    return Pod(
        metadata=ObjectMeta(name=name, namespace="ns", uid=str(uid), resource_version=f"{uid}.{version}")
    )


@settings(max_examples=100)
@given(st.lists(STATES | st.tuples(NAMES, st.integers(1, 3), st.integers(1, 4), st.booleans()), max_size=8))
def test_changes_alone_rebuild_the_copy(steps: list[object]) -> None:
    """Whatever lists and events come, one who only applies the changes knows what the mirror knows."""
    mirror: Mirror[Pod] = Mirror()
    rebuilt: dict[tuple[str, str], Pod] = {}
    for step in steps:
        if isinstance(step, dict):
            pods = tuple(known(name, uid, version) for name, (uid, version) in step.items())
            changes = list(mirror.replace(Listing(pods, "1")))
            assert dict(mirror.objects) == {p.key: p for p in pods}
        else:
            name, uid, version, deleted = step  # type: ignore[misc]
            kind = "DELETED" if deleted else "MODIFIED"
            changes = mirror.apply(WatchEvent(kind, "1", known(name, uid, version)))
        for change in changes:
            follow(rebuilt, change)
        assert rebuilt == dict(mirror.objects)


def follow(rebuilt: dict[tuple[str, str], Pod], change: ObjectChange[Pod]) -> None:
    if change.new is None:
        assert change.old is not None
        del rebuilt[change.old.key]
    elif change.old is None:
        assert change.new.key not in rebuilt
        rebuilt[change.new.key] = change.new
    else:
        assert rebuilt[change.new.key] == change.old
        assert change.old.metadata.uid == change.new.metadata.uid
        rebuilt[change.new.key] = change.new


def test_other_tasks_run_while_many_changes_are_handled() -> None:
    """Whether they come as a list or in one piece of a watch."""
    turns: list[int] = []

    def slow(change: ObjectChange[Pod]) -> None:
        time.sleep(0.002)
        turns.append(0)

    async def others() -> None:
        while True:
            await asyncio.sleep(0)
            if turns:
                turns[-1] += 1

    async def main() -> None:
        async with asyncio.timeout(120), serving() as (fake, client):
            fake.script[PODS] = [listing(*(pod(f"a{n}") for n in range(50)), version="5")]
            fake.script[WATCH] = [watching(b"".join(event("ADDED", pod(f"b{n}", "6")) for n in range(50)))]
            informer = Informer(client, Pod, handler=slow)
            tasks = [asyncio.create_task(informer.run()), asyncio.create_task(others())]
            while len(turns) < 100:
                await asyncio.sleep(0.01)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    asyncio.run(main())
    for half in (turns[:50], turns[50:]):
        assert sum(turn > 0 for turn in half) >= 10, turns


def test_a_kind_that_is_not_served_has_no_objects_until_it_is() -> None:
    async def main() -> None:
        async with asyncio.timeout(120), serving() as (fake, client):
            fake.script[PODS] = [
                failure(404, "NotFound", "the server could not find the requested resource"),
                listing(pod("a"), version="5"),
            ]
            fake.script[WATCH] = [watching()]
            news: asyncio.Queue[str] = asyncio.Queue()
            informer = Informer(
                client,
                Pod,
                handler=lambda change: news.put_nowait(told(change)),
                sleep=lambda _: asyncio.sleep(0.01),
                optional=True,
            )
            task = asyncio.create_task(informer.run())
            await informer.synced()
            assert await news.get() == "+a@1"
            task.cancel()
            await asyncio.wait([task])

    asyncio.run(main())


@pytest.mark.parametrize(("most", "longest"), [(300.0, [30, 60, 120, 240, 300, 300]), (30.0, [30] * 6)])
def test_a_kind_that_is_not_served_is_listed_ever_more_rarely(most: float, longest: list[float]) -> None:
    """Once it was served, the delays start again."""

    async def main() -> None:
        async with asyncio.timeout(120), serving() as (fake, client):
            fake.script[PODS] = [NOT_SERVED] * 6 + [listing(pod("a"), version="5"), NOT_SERVED]
            fake.script[WATCH] = [failure(410, "Expired", "too old resource version")]
            delays: list[float] = []
            ended = asyncio.Event()

            async def sleep(seconds: float) -> None:
                delays.append(seconds)
                if len(delays) == 8:
                    ended.set()
                    await asyncio.Event().wait()

            informer = Informer(client, Pod, sleep=sleep, optional=True, absent_seconds=most)
            task = asyncio.create_task(informer.run())
            await ended.wait()
            task.cancel()
            await asyncio.wait([task])
            absences = delays[:6] + delays[7:]
            for delay, limit in zip(absences, [*longest, longest[0]], strict=True):
                assert limit / 2 <= delay <= limit, delays

    asyncio.run(main())


TOPOLOGIES = "/apis/topology.node.k8s.io/{}/noderesourcetopologies"
NOT_SERVED = failure(404, "NotFound", "the server could not find the requested resource")


def test_a_kind_is_read_in_its_older_version_where_the_newer_is_not_served() -> None:
    async def main() -> None:
        async with asyncio.timeout(120), serving() as (fake, client):
            old = TOPOLOGIES.format("v1alpha1")
            fake.script[TOPOLOGIES.format("v1alpha2")] = [NOT_SERVED]
            fake.script[old] = [listing({"metadata": {"name": "n1", "uid": "u"}}, version="5")]
            changed = event("ADDED", {"metadata": {"name": "n2", "uid": "w", "resourceVersion": "6"}})
            fake.script[f"{old}?watch"] = [watching(changed)]
            names: asyncio.Queue[str] = asyncio.Queue()
            informer: Informer[NodeResourceTopology] = Informer(
                client,
                NodeResourceTopology,
                handler=lambda change: names.put_nowait(change.new.metadata.name if change.new else "-"),
                sleep=lambda _: asyncio.sleep(0.01),
                optional=True,
                older=NodeResourceTopologyV1Alpha1,
            )
            task = asyncio.create_task(informer.run())
            assert [await names.get(), await names.get()] == ["n1", "n2"]
            task.cancel()
            await asyncio.wait([task])

    asyncio.run(main())
