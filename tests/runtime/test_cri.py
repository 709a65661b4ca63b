"""The CRI client: what it reads, and what it says where no runtime answers."""

import asyncio
import json
import socket
import threading
import time
from contextlib import contextmanager, suppress

import pytest

from corelane.runtime.base import RuntimeVersion
from corelane.runtime.cri import client as cri
from corelane.runtime.cri import values
from corelane.runtime.cri.client import CRIClient
from corelane.runtime.cri.values import CRIError, CRIResources
from support import fake_cri
from support.protobuf import decode, encode, strings


def request(endpoint, *methods, seconds=10.0, **more):
    async def talk():
        async with cri.connect(endpoint, seconds) as client:
            return [await getattr(client, method)(*more.get(method, ())) for method in methods]

    return asyncio.run(talk())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cri.sock"


def test_pods_and_containers_are_read_with_their_labels(path):
    answers = {
        "ListPodSandbox": {
            1: [
                fake_cri.sandbox("s2", "u2", "web", ready=False),
                fake_cri.sandbox("s1", "u1", "db", labels=False),
            ]
        },
        "ListContainers": {
            1: [fake_cri.container("c2", "s2", "app", state=2), fake_cri.container("c1", "s1", "main")]
        },
    }
    with fake_cri.serving(path, answers) as endpoint:
        runtime, sandboxes, containers = request(endpoint, "version", "sandboxes", "containers")
    assert runtime == RuntimeVersion("fake", "1.0")
    assert [(one.id, one.uid, one.namespace, one.name, one.ready) for one in sandboxes] == [
        ("s1", "u1", "default", "db", True),
        ("s2", "u2", "default", "web", False),
    ]
    assert [(one.id, one.sandbox, one.name, one.state, one.attempt) for one in containers] == [
        ("c1", "s1", "main", "running", 3),
        ("c2", "s2", "app", "exited", 3),
    ]
    assert containers[0].labels == {values.CONTAINER_NAME: "main"}
    assert sandboxes[1].labels[values.POD_UID] == "u2"


def test_a_static_pod_has_the_kubelets_uid_and_is_recognised_by_its_source(path):
    """Its mirror in the API server has another UID, and the hash as an annotation."""
    source = strings({values.CONFIG_SOURCE: "file", values.CONFIG_HASH: "hash"})
    static = fake_cri.sandbox("s1", "hash", "kube-proxy-node") | {6: source}
    unlabelled = {1: "s2", 2: {1: "etcd", 3: "kube-system"}, 6: source}
    ordinary = fake_cri.sandbox("s3", "u3", "web") | {6: strings({values.CONFIG_SOURCE: "api"})}
    with fake_cri.serving(path, {"ListPodSandbox": {1: [static, unlabelled, ordinary]}}) as endpoint:
        (sandboxes,) = request(endpoint, "sandboxes")
    assert {one.id: (one.uid, one.static) for one in sandboxes} == {
        "s1": ("hash", True),
        "s2": ("hash", True),
        "s3": ("u3", False),
    }


def test_an_empty_runtime_has_nothing(path):
    with fake_cri.serving(path, {"ListPodSandbox": {}, "ListContainers": {}}) as endpoint:
        assert request(endpoint, "sandboxes", "containers") == [[], []]


def test_thousands_of_containers_fit(path):
    many = [fake_cri.container(f"{n:064}", "s", f"c{n}", image="i" * 2000) for n in range(4000)]
    with fake_cri.serving(path, {"ListContainers": {1: many}}) as endpoint:
        assert len(request(endpoint, "containers")[0]) == 4000


def specified(cpu):
    info = json.dumps({"pid": 7, "runtimeSpec": {"linux": {"resources": {"cpu": cpu}}}})
    return {1: {1: "id"}, 2: strings({"info": info})}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (fake_cri.linux(2048, "2,10"), CRIResources(2048, -1, 100_000, "2,10")),
        (
            specified({"shares": 512, "period": 100_000, "cpus": "0-1", "mems": "0"}),
            CRIResources(512, 0, 100_000, "0-1", "0"),
        ),
        (specified({}), CRIResources()),
        (specified(None), None),
        ({1: {1: "id"}}, None),
        ({1: {1: "id"}, 2: strings({"info": "no JSON"})}, None),
        ({1: {1: "id"}, 2: strings({"info": "[]"})}, None),
    ],
)
def test_resources_come_from_the_status_or_from_the_specification(path, answer, expected):
    with fake_cri.serving(path, {"ContainerStatus": answer}) as endpoint:
        assert request(endpoint, "resources", resources=["c1"]) == [expected]


def test_a_container_that_is_gone_has_no_resources(path):
    def gone(_request, context):
        context.abort("NOT_FOUND", "container not found")

    with fake_cri.serving(path, {"ContainerStatus": gone}) as endpoint:
        assert request(endpoint, "resources", resources=["c1"]) == [None]


def test_the_container_asked_for_is_named_in_the_request(path):
    asked = []

    def note(request, _context):
        asked.append(request)
        return encode({})

    with fake_cri.serving(path, {"ContainerStatus": note}) as endpoint:
        request(endpoint, "resources", resources=["c1"])
    assert asked == [encode({1: "c1", 2: 1})]


def test_an_update_sends_the_fields_given_and_no_others(path):
    requests = []

    def note(request, _context):
        requests.append(decode(request))
        return b""

    with fake_cri.serving(path, {"UpdateContainerResources": note}) as endpoint:
        for resources in (CRIResources(cpus="2-3"), CRIResources(quota=-1, period=50_000), CRIResources()):
            request(endpoint, "update", update=["c1", resources])
    assert [decode(fields.get(2, [b""])[0]) for fields in requests] == [
        {6: [b"2-3"]},
        {1: [50_000], 2: [(1 << 64) - 1]},
        {},
    ]
    assert all(fields[1] == [b"c1"] for fields in requests)


def test_details_hold_times_in_seconds_and_the_place_of_the_cgroup(path):
    info = {"pid": 7, "sandboxID": "s1", "runtimeSpec": {"linux": {"cgroupsPath": "/kubepods/pod1/c1"}}}
    status = {1: "c1", 2: {1: "app", 2: 2}, 3: 1, 5: 1_500_000_000, 12: strings({"a": "b"})}
    answer = {1: status, 2: strings({"info": json.dumps(info)})}
    with fake_cri.serving(path, {"ContainerStatus": answer}) as endpoint:
        (details,) = request(endpoint, "details", details=["c1"])
    assert (details.id, details.name, details.attempt, details.state) == ("c1", "app", 2, "running")
    assert (details.started_at, details.finished_at, details.exit_code) == (1.5, None, None)
    assert (details.pid, details.sandbox, details.cgroups_path) == (7, "s1", "/kubepods/pod1/c1")


@pytest.mark.parametrize(
    "code", ["NOT_FOUND", "FAILED_PRECONDITION", "UNKNOWN", "UNIMPLEMENTED", "RESOURCE_EXHAUSTED"]
)
def test_the_code_of_a_failure_is_kept(path, code):
    def refuse(_request, context):
        context.abort(code, "refused")

    answers = {"UpdateContainerResources": refuse}
    with fake_cri.serving(path, answers) as endpoint, pytest.raises(CRIError) as error:
        request(endpoint, "update", update=["c1", CRIResources(cpus="0")])
    assert error.value.code == code


def test_a_missing_socket_and_a_late_answer_have_codes_too(path):
    with pytest.raises(CRIError) as missing:
        request(f"unix://{path}", "version")
    with talking(path, b""), pytest.raises(CRIError) as late:
        request(f"unix://{path}", "version", seconds=0.5)
    assert (missing.value.code, late.value.code) == ("UNAVAILABLE", "DEADLINE_EXCEEDED")


async def test_a_client_outlives_a_restart_of_the_runtime(path):
    client = CRIClient(f"unix://{path}")
    try:
        with pytest.raises(CRIError, match="No such file or directory"):
            await client.version()
        for _ in range(2):
            with fake_cri.serving(path, {}):
                await until_answered(client)
            path.unlink(missing_ok=True)
            with pytest.raises(CRIError, match="No such file or directory"):
                await client.version()
    finally:
        await client.close()


async def until_answered(client):
    async with asyncio.timeout(120):
        while True:
            with suppress(CRIError):
                return await client.version()
            await asyncio.sleep(0.05)


def test_calls_in_flight_are_bounded(path):
    lock, now, peak = threading.Lock(), 0, 0

    def slow(_request, _context):
        nonlocal now, peak
        with lock:
            now, peak = now + 1, max(peak, now + 1)
        time.sleep(0.02)
        with lock:
            now -= 1
        return b""

    async def talk(endpoint):
        async with cri.connect(endpoint) as client:
            await asyncio.gather(*(client.update("c", CRIResources(cpus="0")) for _ in range(40)))

    with fake_cri.serving(path, {"UpdateContainerResources": slow}) as endpoint:
        asyncio.run(talk(endpoint))
    assert 1 < peak <= 8


def events(path, answers, runtime):
    async def talk(endpoint):
        async with cri.connect(endpoint) as client:
            return [container async for container in client.changes(runtime)]

    with fake_cri.serving(path, answers) as endpoint:
        return asyncio.run(talk(endpoint))


EVENTS = {
    "GetContainerEvents": fake_cri.Stream(lambda *_: iter([{1: "cri", 2: 1}, {1: "cri", 2: 2}])),
    "Subscribe": fake_cri.Stream(
        lambda *_: iter(
            [
                {2: "k8s.io", 3: "/tasks/start", 4: {2: {1: "own", 2: 4711}}},
                {2: "k8s.io", 3: "/tasks/exit", 4: {2: {1: "own", 2: "probe"}}},
                {2: "k8s.io", 3: "/tasks/exit", 4: {2: {1: "own", 2: "own"}}},
            ]
        )
    ),
}


@pytest.mark.parametrize(
    ("name", "version", "source"),
    [
        ("containerd", "1.6.20~ds1", "own"),
        ("containerd", "v1.7.24", "own"),
        ("containerd", "v2.1.9", "cri"),
        ("containerd", "devel", "cri"),
        ("cri-o", "1.31.0", "cri"),
    ],
)
def test_events_come_through_cri_but_for_containerd_1(path, name, version, source):
    """Its GetContainerEvents is missing (1.6), or gives an event to one of its listeners alone (1.7)."""
    assert events(path, EVENTS, RuntimeVersion(name, version)) == [
        (source, "started"),
        (source, "stopped"),
    ]


def test_a_runtime_without_events_says_so_by_its_code(path):
    with pytest.raises(CRIError) as error:
        events(path, {}, RuntimeVersion("cri-o", "1.24.0"))
    assert error.value.code == "UNIMPLEMENTED"


def said(endpoint, method="version", **more):
    with pytest.raises(CRIError) as error:
        request(endpoint, method, **more)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(endpoint)
    return str(error.value)


def test_a_missing_socket_is_named(path):
    assert "No such file or directory" in said(f"unix://{path}")


def test_a_path_alone_is_an_endpoint(path):
    assert "No such file or directory" in said(str(path))


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:1", "127.0.0.1:1", "", "containerd.sock"])
def test_what_is_no_socket_of_this_machine_is_refused(endpoint):
    assert "not a socket on this machine" in said(endpoint)


def test_a_socket_on_which_nobody_listens_is_named(path):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert "Connection refused" in said(f"unix://{path}")


def test_a_file_that_is_no_socket_is_named(path):
    path.write_text("no socket")
    assert "this is its CRI socket" in said(f"unix://{path}")


def test_a_server_without_the_cri_is_told_apart(path):
    with fake_cri.serving(path, {}) as endpoint:
        assert "answers gRPC, but not the CRI v1" in said(endpoint, "containers")


def test_a_refusal_is_told_in_the_runtimes_words(path):
    def refuse(_request, context):
        context.abort("FAILED_PRECONDITION", "not yet\nready")

    with fake_cri.serving(path, {"ListContainers": refuse}) as endpoint:
        assert "ListContainers: FAILED_PRECONDITION: not yet ready" in said(endpoint, "containers")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", b"\xff" * 64])
def test_a_server_of_something_else_is_told_apart(path, answer):
    with talking(path, answer):
        assert "CRI socket" in said(f"unix://{path}", seconds=60.0)


def test_a_server_that_says_nothing_costs_no_more_than_was_allowed(path):
    with talking(path, b""):
        assert "no answer within 0.5 s" in said(f"unix://{path}", seconds=0.5)


@contextmanager
def talking(path, answer):
    """A server that sends everybody the same bytes, or nothing, in which case it keeps the connection."""
    kept = []
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen(8)

    def run():
        with suppress(OSError):
            while True:
                peer, _ = server.accept()
                kept.append(peer)
                with suppress(OSError):
                    peer.sendall(answer)
                if answer:
                    peer.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)
        for one in (server, *kept):
            one.close()
