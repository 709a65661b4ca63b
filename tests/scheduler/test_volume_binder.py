"""What is written before a pod with volumes is bound, and the wait for its claims; kinds not served."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from corelane.kube.apierrors import APIError
from corelane.kube.meta import Object
from corelane.kube.objects import Namespace
from corelane.kube.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from corelane.scheduler.cluster.objects import ClusterObjects
from corelane.scheduler.daemon.object_watches import KINDS, ObjectWatches
from corelane.scheduler.daemon.scheduler import SchedulerReporter
from corelane.scheduler.events import SchedulerEvent, Unwatched
from corelane.scheduler.framework.plugin import PreBindError
from corelane.scheduler.plugins.volume_binding import VolumeWork, bind_volumes
from support.fake_api import Fake, answer, event, failure, listing, serving, watching

CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "data", "namespace": "ns", "uid": "u", "resourceVersion": "3"},
}
VOLUME = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv", "resourceVersion": "7"}}
STORAGE: tuple[type[Object], ...] = (PersistentVolume, PersistentVolumeClaim, StorageClass)
CLAIMS = PersistentVolumeClaim.api.plural
CLAIM_PATH = "/api/v1/namespaces/ns/persistentvolumeclaims/data"
VOLUME_PATH = "/api/v1/persistentvolumes/pv"
SELECTED = "volume.kubernetes.io/selected-node"


def claim(version: str = "3", volume: str = "", **annotations: str) -> PersistentVolumeClaim:
    marks = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
    metadata = CLAIM["metadata"] | {"resourceVersion": version, "annotations": marks | annotations}  # type: ignore[operator]
    return msgspec.convert({"metadata": metadata, "spec": {"volumeName": volume}}, PersistentVolumeClaim)


def volume(version: str = "7", uid: str = "") -> PersistentVolume:
    of = {"claimRef": {"namespace": "ns", "name": "data", "uid": uid}} if uid else {}
    metadata = VOLUME["metadata"] | {"resourceVersion": version}  # type: ignore[operator]
    return msgspec.convert({"metadata": metadata, "spec": of}, PersistentVolume)


def known() -> ClusterObjects:
    objects = ClusterObjects()
    objects.put_claim(("ns", "data"), claim())
    objects.put_volume("pv", volume())
    return objects


PROVISION = VolumeWork("VolumeBinding", "n1", (), (claim(),))
STATIC = VolumeWork("VolumeBinding", "n1", ((volume(), claim()),), ())


async def test_a_claim_gets_its_node_and_the_pod_waits_until_it_is_bound() -> None:
    async with serving() as (fake, client):
        fake.script[CLAIM_PATH].append(answer(CLAIM))
        objects = known()
        task = asyncio.ensure_future(bind_volumes(client, objects, PROVISION, 30.0))
        await _until(lambda: fake.bodies)
        assert fake.seen[0].content_type == "application/merge-patch+json"
        assert json.loads(fake.bodies[0]) == {
            "metadata": {"resourceVersion": "3", "annotations": {SELECTED: "n1"}}
        }
        objects.put_claim(("ns", "data"), claim("4", **{SELECTED: "n1"}))
        await asyncio.sleep(0.3)
        assert not task.done()
        objects.put_claim(("ns", "data"), claim("5", "made", **{SELECTED: "n1"}))
        await asyncio.wait_for(task, 120)


async def test_a_volume_gets_its_claim() -> None:
    async with serving() as (fake, client):
        fake.script[VOLUME_PATH].append(answer(VOLUME))
        objects = known()
        task = asyncio.ensure_future(bind_volumes(client, objects, STATIC, 30.0))
        await _until(lambda: fake.bodies)
        body = json.loads(fake.bodies[0])
        assert body["metadata"] == {
            "resourceVersion": "7",
            "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"},
        }
        assert body["spec"]["claimRef"]["uid"] == "u"
        objects.put_volume("pv", volume("8", "u"))
        objects.put_claim(("ns", "data"), claim("4", "pv"))
        await asyncio.wait_for(task, 120)


async def test_what_is_written_already_is_not_written_again() -> None:
    async with serving() as (fake, client):
        objects = known()
        objects.put_claim(("ns", "data"), claim("5", "pv", **{SELECTED: "n1"}))
        objects.put_volume("pv", volume("8", "u"))
        await bind_volumes(client, objects, PROVISION, 30.0)
        await bind_volumes(client, objects, STATIC, 30.0)
        assert fake.seen == []


async def test_a_changed_object_is_a_conflict() -> None:
    async with serving() as (fake, client):
        fake.script[CLAIM_PATH].append(failure(409, "Conflict", "the object has been modified"))
        with pytest.raises(APIError, match="modified"):
            await bind_volumes(client, known(), PROVISION, 30.0)


@pytest.mark.parametrize(
    ("work", "change", "message"),
    [
        (PROVISION, claim("4"), "provisioning failed for PVC 'ns/data'"),
        (PROVISION, claim("4", **{SELECTED: "n2"}), "provisioning failed for PVC 'ns/data'"),
        (PROVISION, None, "persistentvolumeclaim ns/data was deleted"),
        (STATIC, volume("8"), "ClaimRef got reset for pv 'pv'"),
    ],
)
async def test_waiting_ends_where_it_is_of_no_use(work: VolumeWork, change: Any, message: str) -> None:
    async with serving() as (fake, client):
        fake.script[CLAIM_PATH].append(answer(CLAIM))
        fake.script[VOLUME_PATH].append(answer(VOLUME))
        objects = known()
        task = asyncio.ensure_future(bind_volumes(client, objects, work, 30.0))
        await _until(lambda: fake.bodies)
        if isinstance(change, PersistentVolume):
            objects.put_volume("pv", change)
        else:
            objects.put_claim(("ns", "data"), change)
        with pytest.raises(PreBindError, match=message):
            await asyncio.wait_for(task, 120)


async def test_the_wait_is_limited_and_says_for_what() -> None:
    async with serving() as (fake, client):
        fake.script[CLAIM_PATH].append(answer(CLAIM))
        with pytest.raises(PreBindError, match="claim ns/data not bound after 0 s; see the claim's events"):
            await bind_volumes(client, known(), PROVISION, 0.3)


# Kinds that a scheduler can do without.


class Retries(SchedulerReporter):
    """Kinds whose lists failed and are repeated."""

    def __init__(self) -> None:
        self.kinds: set[type[Object]] = set()

    def retrying(self, kind: type[Object], error: APIError, seconds: float) -> None:
        self.kinds.add(kind)


def script_all(fake: Fake) -> None:
    for kind in KINDS:
        path = kind.api.path()
        fake.script[path] = [listing()]
        fake.script[f"{path}?watch"] = [watching()]


class Sink:
    """A core that only takes events."""

    def __init__(self, events: list[SchedulerEvent]) -> None:
        self.handle = events.append


@asynccontextmanager
async def watching_all(watches: ObjectWatches) -> AsyncIterator[None]:
    """Every kind is listed, or known not to be served."""
    task = asyncio.ensure_future(watches.run())
    try:
        await asyncio.wait_for(watches.settled(), 120)
        yield
    finally:
        task.cancel()


async def test_a_forbidden_kind_is_reported_and_listed_later() -> None:
    async with serving() as (fake, client):
        told: list[SchedulerEvent] = []
        script_all(fake)
        namespace = {"metadata": {"name": "ns", "resourceVersion": "2"}}
        fake.script["/api/v1/namespaces?watch"] = [watching(event("ADDED", namespace))]
        forbidden = failure(403, "Forbidden", "claims are forbidden")
        fake.script["/api/v1/persistentvolumeclaims"] = [forbidden, listing(CLAIM)]
        watches = ObjectWatches(client, Sink(told), SchedulerReporter())
        async with watching_all(watches):
            for kind in (PersistentVolumeClaim, Namespace):
                await _until(lambda: any(isinstance(getattr(one, "new", None), kind) for one in told))  # noqa: B023
        claims = [one for one in told if isinstance(one, Unwatched) and one.plural == CLAIMS]
        assert [bool(one.error) for one in claims] == [True, False]
        assert "claims are forbidden" in claims[0].error


async def test_storage_kinds_that_are_not_served_are_empty_and_no_failure_is_reported() -> None:
    async with serving() as (fake, client):
        told: list[SchedulerEvent] = []
        retries = Retries()
        script_all(fake)
        for kind in STORAGE:
            del fake.script[kind.api.path()]
        async with watching_all(ObjectWatches(client, Sink(told), retries)):
            pass
        asked = {request.path for request in fake.seen}
        assert {kind.api.path() for kind in STORAGE} <= asked
        assert {one.plural for one in told if isinstance(one, Unwatched)}.isdisjoint(
            kind.api.plural for kind in STORAGE
        )
        assert retries.kinds.isdisjoint(STORAGE)


async def test_kinds_known_not_to_be_served_are_not_asked_for() -> None:
    async with serving() as (fake, client):
        script_all(fake)
        async with watching_all(ObjectWatches(client, Sink([]), SchedulerReporter(), unserved=STORAGE)):
            pass
        asked = {request.path for request in fake.seen}
        assert Namespace.api.path() in asked
        assert asked.isdisjoint(kind.api.path() for kind in STORAGE)


async def _until(holds: Any) -> None:
    async with asyncio.timeout(120):
        while not holds():
            await asyncio.sleep(0.01)
