"""When and by whom the NodeResourceTopology is written, and what is written beside another exporter."""

import asyncio
import json
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corelane.agent.publication.publisher import Publisher
from corelane.agent.publication.topology_writer import PublishSchedule, TopologyWriter
from corelane.agent.publication.write_queue import PublicationReporter
from corelane.embedded.apiserver.write.patching import merged
from corelane.kube import keys
from corelane.kube.client import APIError
from corelane.kube.translate.topology_zones import FIELD_MANAGER, zone_owner
from support.clocks import SetClocks

ZONES = [{"name": "node-0", "type": "Node"}]
NFD = {"manager": "nfd-topology-updater", "time": "2026-01-02T00:00:00Z", "fieldsV1": {"f:zones": {}}}
OWN = {"manager": FIELD_MANAGER, "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:zones": {}}}


def body(generation):
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {
            "name": "n",
            "labels": {keys.MANAGED_BY: "corelane"},
            "annotations": {keys.CPU_ALLOCATIONS: str(generation)},
        },
        "topologyPolicies": ["None"],
        "attributes": [],
        "zones": ZONES,
    }


class Server:
    """One NodeResourceTopology; `writers` are the managedFields."""

    def __init__(self, stored=None, writers=()):
        self.stored, self.writers, self.written = stored, list(writers), []

    def _answer(self):
        fields = {"managedFields": self.writers} if self.writers else {}
        return {**self.stored, "metadata": {**self.stored.get("metadata", {}), **fields}}

    async def raw(self, method, path, query=None, accept=""):
        if self.stored is None:
            raise APIError(404, "NotFound", "not found")
        return json.dumps(self._answer()).encode()

    async def patch(self, kind, name, patch, field_manager=None):
        if self.stored is None:
            raise APIError(404, "NotFound", "not found")
        assert field_manager == FIELD_MANAGER
        self.written.append(patch)
        self.stored = merged(self.stored, patch)
        return self._answer()

    async def read_tree(self, path, *, accept=""):
        return json.loads(await self.raw("GET", path, accept=accept))

    async def create(self, whole, field_manager=None):
        self.written.append(whole)
        self.stored = whole
        return self._answer()


class Eager(PublishSchedule):
    def due(self, now):
        return now


class Owners(PublicationReporter):
    """Keeps the programs that own the zones."""

    def __init__(self):
        self.names = []

    def zones_owned_by(self, owner):
        self.names.append(owner)


def story(server, body, schedule=None):
    async def main():
        owners = Owners()
        publisher = Publisher(server, "n", owners, SetClocks())
        queue, writer = (
            publisher.node_queue,
            TopologyWriter(server, "n", publisher, owners, schedule or Eager()),
        )
        task = asyncio.create_task(queue.run())
        try:
            await asyncio.wait_for(body(writer, queue), 120)
        finally:
            task.cancel()
        return owners.names

    return asyncio.run(main())


def generation(patch):
    return int(patch["metadata"]["annotations"][keys.CPU_ALLOCATIONS])


def test_a_burst_of_changes_is_written_once_with_the_last_state():
    server = Server()

    async def changes(writer, queue):
        for number in range(20):
            writer.write(lambda number=number: body(number))
        writer.flush()
        await queue.idle()

    story(server, changes, PublishSchedule())
    assert [generation(whole) for whole in server.written] == [19]


def test_zones_of_another_exporter_are_left_alone_and_reported_once():
    server = Server({"metadata": {"name": "n"}, "zones": ZONES}, [NFD])

    async def changes(writer, queue):
        for number in range(3):
            writer.write(lambda number=number: body(number))
            writer.flush()
            await queue.idle()

    assert story(server, changes) == ["nfd-topology-updater"]
    assert [generation(patch) for patch in server.written] == [0, 1, 2]
    for patch in server.written:
        assert not {"zones", "topologyPolicies", "attributes"} & patch.keys()
        assert "labels" not in patch["metadata"]


def test_an_exporter_that_takes_the_zones_later_is_noticed_by_the_next_write():
    server = Server(body(0), [OWN])

    async def changes(writer, queue):
        writer.write(lambda: body(1))
        writer.flush()
        await queue.idle()
        server.writers.append(NFD)
        for number in (2, 3):
            writer.write(lambda number=number: body(number))
            writer.flush()
            await queue.idle()

    assert story(server, changes) == ["nfd-topology-updater"]
    assert ["zones" in patch for patch in server.written] == [True, False, False]


class Versioned(Server):
    """With a resource version that counts writes; `meanwhile` is called before each patch."""

    def __init__(self, stored=None, writers=()):
        super().__init__(stored, writers)
        self.version, self.meanwhile = 1, lambda: None

    def _answer(self):
        answer = super()._answer()
        return {**answer, "metadata": {**answer["metadata"], "resourceVersion": str(self.version)}}

    async def patch(self, kind, name, patch, field_manager=None):
        self.meanwhile()
        if self.stored is not None and patch["metadata"].get("resourceVersion", str(self.version)) != str(
            self.version
        ):
            raise APIError(409, "Conflict", "the object has been modified")
        self.version += 1
        return await super().patch(kind, name, patch, field_manager)

    def other(self, writer, **parts):
        """Another program writes parts of the object."""
        self.stored, self.version = merged(self.stored, parts), self.version + 1
        self.writers += [writer] if writer else []


def with_zones(number):
    return body(number) | {"zones": [{"name": "node-0", "type": "Node", "parent": f"socket-{number}"}]}


def writes(server, *numbers):
    async def changes(writer, queue):
        writer.write(lambda: with_zones(0))
        writer.flush()
        await queue.idle()
        for number, meanwhile in numbers:
            meanwhile(server)
            writer.write(lambda number=number: with_zones(number))
            writer.flush()
            await queue.idle()

    return story(server, changes)


def test_zones_that_an_exporter_took_over_are_not_overwritten_by_changed_ones():
    foreign = [{"name": "node-0", "type": "Node", "parent": "theirs"}]

    def take(server):
        server.other(NFD, zones=foreign)

    server = Versioned(body(0), [OWN])
    assert writes(server, (1, take), (2, lambda _: None)) == ["nfd-topology-updater"]
    assert server.stored["zones"] == foreign
    assert generation(server.stored) == 2


def test_changes_of_others_do_not_keep_changed_zones_from_being_written():
    def annotate(server):
        server.other(None, metadata={"annotations": {"example.com/note": str(server.version)}})

    server = Versioned(body(0), [OWN])
    assert writes(server, (1, annotate), (2, annotate)) == []
    assert server.stored["zones"] == with_zones(2)["zones"]
    server.meanwhile = lambda: annotate(server)  # Busier than any controller.
    assert writes(server, (3, lambda _: None)) == []
    assert server.stored["zones"] == with_zones(3)["zones"]


def test_zones_are_written_again_once_the_object_of_the_other_exporter_is_deleted():
    server = Server({"metadata": {"name": "n"}, "zones": ZONES}, [NFD])

    async def changes(writer, queue):
        writer.write(lambda: body(1))
        writer.flush()
        await queue.idle()
        server.stored, server.writers = None, []
        writer.write(lambda: body(2))
        writer.flush()
        await queue.idle()

    assert story(server, changes) == ["nfd-topology-updater"]
    assert ["zones" in patch for patch in server.written] == [False, True]


def test_a_damaged_object_is_repaired_and_a_whole_one_is_not_written():
    server = Server(body(1))

    async def changes(writer, queue):
        writer.repair(lambda: body(1))
        await queue.idle()
        assert server.written == []
        server.stored = body(1) | {"zones": []}
        writer.repair(lambda: body(1))
        await queue.idle()

    story(server, changes)
    assert len(server.written) == 1


def test_missing_zones_beside_another_exporter_are_no_damage():
    server = Server({**body(1), "zones": []}, [NFD])

    async def changes(writer, queue):
        writer.write(lambda: body(1))
        writer.flush()
        await queue.idle()
        writer.repair(lambda: body(1))
        await queue.idle()

    story(server, changes)
    assert len(server.written) == 1


@pytest.mark.parametrize(
    ("metadata", "owner"),
    [
        ({}, ""),
        ({"labels": {keys.MANAGED_BY: "corelane"}}, ""),
        ({"labels": {keys.MANAGED_BY: "Koordinator"}}, "Koordinator"),
        ({"managedFields": [OWN]}, ""),
        ({"managedFields": [OWN, NFD]}, "nfd-topology-updater"),
        ({"managedFields": [{**OWN, "time": "2026-02-01T00:00:00Z"}, NFD]}, ""),
        ({"managedFields": [{**NFD, "manager": "python-httpx2"}]}, ""),
        ({"managedFields": [{**NFD, "fieldsV1": {"f:metadata": {}}}]}, ""),
        ({"managedFields": [{**NFD, "manager": "kubectl-edit"}]}, ""),
        (
            {"managedFields": [NFD, {**OWN, "manager": "kubectl", "time": "2026-02-01T00:00:00Z"}]},
            NFD["manager"],
        ),
        ({"managedFields": "damaged", "labels": None}, ""),
        ({"managedFields": [None, 3, {}]}, ""),
    ],
)
def test_the_owner_of_the_zones_is_their_last_writer(metadata, owner):
    assert zone_owner({"metadata": metadata}) == owner


@given(st.lists(st.floats(0.0, 3.0), max_size=60), st.integers(1, 5), st.integers(0, 99))
def test_writes_are_soon_and_never_more_often_than_the_rate(gaps, burst, seed):
    schedule, now, due = PublishSchedule(burst=burst, period=1.0, rng=random.Random(seed)), 10.0, []
    for gap in gaps:
        now = max(now + gap, due[-1] if due else 0.0)
        due.append(schedule.due(now))
        assert now < due[-1] <= now + 1.25
    for start in range(len(due)):
        for end in range(start + burst + 1, len(due)):
            assert due[end] - due[start] >= (end - start - burst) * 0.999 - 0.06


def test_a_single_change_after_a_quiet_time_is_written_at_once():
    schedule = PublishSchedule(burst=2, period=1.0)
    assert schedule.due(100.0) <= 100.1
    assert schedule.due(100.1) <= 100.2
    assert schedule.due(100.2) >= 100.9
    assert schedule.due(200.0) <= 200.1


def test_only_what_changed_is_sent():
    server = Server()

    async def changes(writer, queue):
        for number in (1, 2):
            writer.write(lambda number=number: body(number))
            writer.flush()
            await queue.idle()

    story(server, changes)
    assert server.written[1] == {"metadata": {"annotations": {keys.CPU_ALLOCATIONS: "2"}}}


KEYS = (keys.CPU_ALLOCATIONS, keys.MACHINE, keys.AMPLIFICATION, keys.POD_CPU_ALLOCS)
texts = st.sampled_from(["", "a", "b"])
zones = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from(["node-0", "node-1"]), "capacity": texts}),
    min_size=1,
    max_size=2,
)


@st.composite
def published(draw):
    """What an agent publishes, optional annotations left out or not."""
    whole = body(0)
    own = draw(st.fixed_dictionaries(dict.fromkeys(KEYS[:2], texts), optional=dict.fromkeys(KEYS[2:], texts)))
    whole["metadata"] |= {"annotations": own, "ownerReferences": [{"uid": draw(texts)}]}
    return whole | {"zones": draw(zones), "attributes": draw(zones)}


@st.composite
def by_others(draw):
    """A merge patch of another program: annotations and members changed, added, removed."""
    annotations = draw(st.dictionaries(st.sampled_from([*KEYS, "other"]), st.none() | texts, max_size=3))
    more = draw(st.fixed_dictionaries({}, optional={"labels": st.none(), "ownerReferences": st.none()}))
    return {"metadata": {"annotations": annotations} | more} | draw(
        st.dictionaries(
            st.sampled_from(["zones", "topologyPolicies", "other"]), zones | st.none(), max_size=2
        )
    )


def _published(**annotations):
    whole = body(0)
    whole["metadata"] |= {"annotations": annotations, "ownerReferences": [{"uid": "u"}]}
    return whole


FIRST = (None, _published(**dict.fromkeys(KEYS[:2], "a")))


@example([FIRST, ({"metadata": {"annotations": {KEYS[2]: "b"}}}, FIRST[1])])
@example([FIRST, ({"metadata": {"labels": None}}, FIRST[1])])
@example([FIRST, ({"zones": None}, FIRST[1])])
@given(st.lists(st.tuples(by_others() | st.none(), published()), min_size=1, max_size=6))
def test_after_each_write_the_object_has_all_that_is_published_whatever_others_did(steps):
    server = Server()

    async def changes(writer, queue):
        for others, whole in steps:
            if others is not None and server.stored is not None:
                server.stored = merged(server.stored, others)
            writer.write(lambda whole=whole: whole)
            writer.flush()
            await queue.idle()
            assert {**server.stored, **whole, "metadata": server.stored["metadata"]} == server.stored
            for part in ("labels", "ownerReferences"):
                assert server.stored["metadata"][part] == whole["metadata"][part]
            annotations = server.stored["metadata"]["annotations"]
            assert {key: annotations[key] for key in KEYS[:2]} == {
                key: whole["metadata"]["annotations"][key] for key in KEYS[:2]
            }
            for key in KEYS[2:]:
                assert annotations.get(key) == whole["metadata"]["annotations"].get(key)

    story(server, changes)


class Counting(Server):
    """Numbers its changes, as an API server does, and notes how it was read."""

    def __init__(self):
        super().__init__()
        self.reads = []

    def _answer(self):
        answer = super()._answer()
        return {**answer, "metadata": {**answer["metadata"], "resourceVersion": str(len(self.written))}}

    async def raw(self, method, path, query=None, accept=""):
        self.reads.append("metadata" if "PartialObjectMetadata" in accept else "whole")
        return await super().raw(method, path, query, accept)


def test_a_check_reads_metadata_alone_unless_the_object_was_changed_or_deleted():
    server = Counting()

    async def changes(writer, queue):
        writer.write(lambda: body(1))
        writer.flush()
        await queue.idle()
        server.reads.clear()
        writer.repair(lambda: body(1))
        await queue.idle()
        assert server.reads == ["metadata"]
        assert len(server.written) == 1
        server.stored = None
        writer.repair(lambda: body(1))
        await queue.idle()
        assert server.stored["zones"] == ZONES
        server.stored = {**server.stored, "zones": []}
        server.written.append("by another")
        writer.repair(lambda: body(1))
        await queue.idle()
        assert server.stored["zones"] == ZONES

    story(server, changes)


class Versions(Server):
    """Serves the object in some versions, as one stored form."""

    def __init__(self, *served, stored=None, writers=()):
        super().__init__(stored, writers)
        self.served = list(served)

    def _find(self, version):
        if version not in self.served:
            raise APIError(404, "NotFound", "the server could not find the requested resource")

    async def raw(self, method, path, query=None, accept=""):
        self._find(path.split("/")[3])
        return await super().raw(method, path, query)

    async def patch(self, kind, name, patch, field_manager=None):
        self._find(kind.api.version)
        return await super().patch(kind, name, patch, field_manager)

    async def create(self, whole, field_manager=None):
        self._find(whole["apiVersion"].split("/")[1])
        if self.stored is not None:
            raise APIError(409, "AlreadyExists", "exists")
        return await super().create(whole, field_manager)


@pytest.mark.parametrize("stored", [None, {"metadata": {"name": "n"}, "zones": []}])
def test_where_v1alpha2_is_not_served_the_object_is_written_as_v1alpha1(stored):
    server = Versions("v1alpha1", stored=stored)

    async def changes(writer, queue):
        for number in range(3):
            writer.write(lambda number=number: body(number))
            writer.flush()
            await queue.idle()
        server.stored = {**server.stored, "zones": []}
        writer.repair(lambda: body(3))
        await queue.idle()

    assert story(server, changes) == []
    assert [generation(one) for one in server.written] == [0, 1, 2, 3]
    assert server.stored["zones"] == ZONES
    assert all(one.get("apiVersion", "x/v1alpha1").endswith("/v1alpha1") for one in server.written)
    assert not any("attributes" in one for one in server.written)


def test_where_both_versions_are_served_the_newer_one_is_written():
    server = Versions("v1alpha1", "v1alpha2")

    async def changes(writer, queue):
        writer.write(lambda: body(0))
        writer.flush()
        await queue.idle()

    story(server, changes)
    assert [one["apiVersion"] for one in server.written] == ["topology.node.k8s.io/v1alpha2"]


def test_a_cluster_that_serves_another_version_later_gets_that_one():
    server = Versions()

    async def changes(writer, queue):
        for number, served in enumerate([["v1alpha1"], ["v1alpha2"], ["v1alpha1"], ["v1alpha2"]]):
            server.served = [] if number == 0 else server.served
            writer._make = lambda number=number: body(number)
            if number == 0:
                with pytest.raises(APIError):
                    await writer._write()
            server.served = served
            try:
                await writer._write()
            except APIError:  # The queue tries again.
                await writer._write()
            assert generation(server.stored) == number

    story(server, changes)
    assert generation(server.stored) == 3


def test_other_errors_say_nothing_about_the_version():
    server = Versions("v1alpha2")
    fails = [APIError(500, "InternalError", "no"), APIError(403, "Forbidden", "no")]
    create = server.create

    async def failing(whole, field_manager=None):
        if fails:
            raise fails.pop()
        return await create(whole, field_manager)

    server.create = failing

    async def changes(writer, queue):
        writer._make = lambda: body(0)
        for _ in range(2):
            with pytest.raises(APIError):
                await writer._write()
        await writer._write()

    story(server, changes)
    assert [one["apiVersion"] for one in server.written] == ["topology.node.k8s.io/v1alpha2"]


def test_where_no_version_is_served_the_command_that_defines_the_kind_is_named():
    failures = []

    class Failures(PublicationReporter):
        def api_failed(self, what, error):
            failures.append(str(error))

    async def changes():
        publisher = Publisher(Versions(), "n", Failures(), SetClocks())
        queue, writer = publisher.node_queue, TopologyWriter(Versions(), "n", publisher, Failures(), Eager())
        running = asyncio.create_task(queue.run())
        writer.write(lambda: body(1))
        while not failures:
            await asyncio.sleep(0.01)
        running.cancel()

    asyncio.run(asyncio.wait_for(changes(), 30))
    first = "the API server serves neither topology.node.k8s.io/v1alpha2 nor v1alpha1; "
    command = "kubectl apply -f deploy/noderesourcetopologies.yaml"
    assert failures[0].startswith(f"{first}define NodeResourceTopology: {command}")
