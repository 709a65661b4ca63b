"""Leader election: at most one replica leads at any moment, whatever the server and the network do."""

import asyncio
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.embedded.apiserver.http.auth import User
from corelane.embedded.apiserver.http.server import APIServer
from corelane.kube.apierrors import APIError, Unreachable
from corelane.kube.client import KubeClient
from corelane.kube.leader_election import (
    ElectionReporter,
    ElectionSettingsError,
    LeaderElector,
    LeaseSettings,
)
from corelane.kube.objects import Lease
from support import virtual_time

NAMES = ("a", "b", "c")


class Store:
    """One Lease on a server that is slow, loses answers, and carries requests out late."""

    def __init__(self, rng: random.Random, faults: float) -> None:
        self.rng, self.faults = rng, faults
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.writes: list[tuple[float, str]] = []

    async def _travel(self) -> None:
        slow = self.rng.random() < self.faults
        await asyncio.sleep(self.rng.uniform(0, 20.0 if slow else 0.2))
        if self.rng.random() < self.faults / 3:
            raise Unreachable("no answer")

    async def get(self, kind: type[Lease], name: str, namespace: str) -> Lease:
        await self._travel()
        if self.lease is None:
            raise APIError(404, "NotFound", "no lease")
        read = msgspec.convert(self.lease, Lease)
        await self._travel()
        return read

    async def create(self, obj: dict[str, Any]) -> dict[str, Any]:
        return await asyncio.shield(self._write(obj, None))

    async def patch(self, kind: type[Lease], name: str, body: dict[str, Any], **_: Any) -> dict[str, Any]:
        # Shielded: the server goes on when the client gives up.
        return await asyncio.shield(self._write(body, body["metadata"]["resourceVersion"]))

    async def _write(self, body: dict[str, Any], version: str | None) -> dict[str, Any]:
        await self._travel()
        known = self.lease["metadata"]["resourceVersion"] if self.lease else None
        if known != version:
            raise APIError(409, "Conflict", "changed")
        self.version += 1
        spec = {**(self.lease["spec"] if self.lease else {}), **body["spec"]}
        self.lease = {"metadata": {"resourceVersion": str(self.version)}, "spec": spec}
        self.writes.append((asyncio.get_running_loop().time(), spec["holderIdentity"]))
        stored = dict(self.lease)
        await self._travel()
        return stored


def elector(store: Any, name: str, rng: random.Random, **times: float) -> LeaderElector:
    clock = asyncio.get_running_loop().time
    return LeaderElector(store, LeaseSettings("test", **times), name, now=clock, rng=rng)  # type: ignore[arg-type]


async def replica(made: LeaderElector, rng: random.Random) -> None:
    while True:
        await made.acquire()
        end = rng.uniform(1, 200)
        try:
            async with asyncio.timeout(end):
                await made.hold()
        except TimeoutError:
            if rng.random() < 0.5:
                await made.release()
            await asyncio.sleep(rng.uniform(0, 30))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 32), faults=st.sampled_from([0.0, 0.1, 0.4]))
def test_at_most_one_replica_leads_at_any_moment(seed: int, faults: float) -> None:
    async def main() -> None:
        rng = random.Random(seed)
        store = Store(rng, faults)
        electors = [elector(store, name, rng) for name in NAMES]
        tasks = [asyncio.create_task(replica(one, rng)) for one in electors]
        led: set[str] = set()
        for _ in range(6000):
            await asyncio.sleep(0.25)
            leading = {one.identity for one in electors if one.leading}
            assert len(leading) <= 1, leading
            led |= leading
        assert led, "somebody leads at last"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    virtual_time.run(main())


def test_a_leader_that_cannot_renew_stops_before_another_starts() -> None:
    async def main() -> None:
        rng = random.Random(1)
        store = Store(rng, 0.0)
        first, second = elector(store, "a", rng), elector(store, "b", rng)
        await first.acquire()
        cut = asyncio.get_running_loop().time()

        async def refuse(*_: object, **__: object) -> None:
            raise Unreachable("cut off")

        first._client = type("Cut", (), {"get": refuse, "patch": refuse, "create": refuse})()
        holding = asyncio.create_task(first.hold())
        taking = asyncio.create_task(second.acquire())
        await holding
        lost = asyncio.get_running_loop().time()
        assert not first.leading
        assert not taking.done()
        await taking
        taken = asyncio.get_running_loop().time()
        assert lost - cut <= 10
        assert 15 <= taken - cut <= 15 + 2 * 2.2 + 1

    virtual_time.run(main())


def test_a_released_lease_is_taken_at_the_next_attempt() -> None:
    async def main() -> None:
        rng = random.Random(1)
        store = Store(rng, 0.0)
        first, second = elector(store, "a", rng), elector(store, "b", rng)
        await first.acquire()
        taking = asyncio.create_task(second.acquire())
        await asyncio.sleep(1)
        await first.release()
        released = asyncio.get_running_loop().time()
        await taking
        assert asyncio.get_running_loop().time() - released <= 2 * 2.2 + 1
        assert store.lease is not None
        assert store.lease["spec"]["leaseTransitions"] == 2 - 1

    virtual_time.run(main())


def test_a_leader_whose_lease_was_taken_stops_at_once() -> None:
    async def main() -> None:
        rng = random.Random(1)
        store = Store(rng, 0.0)
        first = elector(store, "a", rng)
        await first.acquire()
        store.lease = None
        thief = elector(store, "b", rng)
        await thief.acquire()
        begun = asyncio.get_running_loop().time()
        await first.hold()
        assert asyncio.get_running_loop().time() - begun <= 1

    virtual_time.run(main())


def test_after_a_long_pause_a_leader_knows_that_it_leads_no_more() -> None:
    now = [100.0]

    async def main() -> None:
        rng = random.Random(1)
        store = Store(rng, 0.0)
        made = LeaderElector(store, LeaseSettings("test"), "a", now=lambda: now[0], rng=rng)  # type: ignore[arg-type]
        await made.acquire()
        assert made.leading
        now[0] += 10
        assert not made.leading
        assert not made.renewals_late
        now[0] += 5.1
        assert made.renewals_late

    virtual_time.run(main())


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ({"duration": 10}, "renew deadline 10 s: must be shorter than the lease duration (10 s)"),
        ({"duration": 0.5}, "lease duration 0.5 s: must be a whole number of seconds, 1 or more"),
        ({"retry_period": 9}, "retry period 9 s: must be above 0 and 1.2 times it shorter than the renew"),
        ({"retry_period": 0}, "retry period 0 s: must be above 0"),
    ],
)
def test_times_that_do_not_fit_are_refused(times: dict[str, float], message: str) -> None:
    with pytest.raises(ElectionSettingsError) as caught:
        LeaseSettings("test", **times)
    assert message in str(caught.value)


class Log(ElectionReporter):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def waiting(self, holder: str) -> None:
        self.lines.append(f"waiting for {holder}")

    def leading(self, *, leads: bool) -> None:
        self.lines.append("leads" if leads else "lost")


def test_on_a_real_server_the_lease_has_client_gos_fields() -> None:
    async def main() -> None:
        server = APIServer(tokens={"t": User("admin", ("system:masters",))})
        await server.start()
        client = KubeClient.connect_to(server.url, "t")
        times = LeaseSettings("test", duration=2, renew_deadline=1.5, retry_period=0.2)
        log = Log()
        first = LeaderElector(client, times, "a")
        second = LeaderElector(client, times, "b", reporter=log)
        try:
            async with asyncio.timeout(180):
                await first.acquire()
                lease = await client.get(Lease, "test", "kube-system")
                assert lease.spec.holder_identity == "a"
                assert lease.spec.lease_duration_seconds == 2
                assert lease.spec.acquire_time == lease.spec.renew_time
                assert lease.spec.acquire_time.endswith("Z")
                assert lease.spec.lease_transitions == 0
                holding = asyncio.create_task(first.hold())
                taking = asyncio.create_task(second.acquire())
                while "waiting for a" not in log.lines:
                    await asyncio.sleep(0.05)
                renewed = lease
                while renewed.spec.renew_time == lease.spec.renew_time:
                    renewed = await client.get(Lease, "test", "kube-system")
                assert renewed.spec.acquire_time == lease.spec.acquire_time
                holding.cancel()
                await asyncio.wait([holding])
                await first.release()
                released = await client.get(Lease, "test", "kube-system")
                assert released.spec.holder_identity in {"", "b"}
                await taking
                taken = await client.get(Lease, "test", "kube-system")
                assert (taken.spec.holder_identity, taken.spec.lease_transitions) == ("b", 1)
                assert log.lines[-1] == "leads"
        finally:
            await client.close()
            await server.stop()

    asyncio.run(main())


@pytest.mark.parametrize("year", ["1970", "2999"])
def test_the_times_in_a_lease_decide_nothing(year: str) -> None:
    """They are of another replica's clock, which may be set to anything."""

    async def main() -> None:
        rng = random.Random(1)
        store = Store(rng, 0.0)
        first, second = elector(store, "a", rng), elector(store, "b", rng)
        await first.acquire()
        assert store.lease is not None
        store.lease["spec"]["renewTime"] = f"{year}-01-01T00:00:00.000000Z"
        begun = asyncio.get_running_loop().time()
        await second.acquire()
        assert 14 <= asyncio.get_running_loop().time() - begun <= 15 + 2 * 2.2 + 1

    virtual_time.run(main())
