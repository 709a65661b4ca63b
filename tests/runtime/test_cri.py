"""The CRI client: what it reads, and what it says where no runtime answers."""

import asyncio
import json
import socket
import threading
from contextlib import contextmanager, suppress

import grpc
import pytest

from corelane.runtime import cri
from corelane.runtime.cri import CRIError, CRIResources, RuntimeVersion
from support import fake_cri
from support.protobuf import encode, strings


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
    assert containers[0].labels == {cri.CONTAINER_NAME: "main"}
    assert sandboxes[1].labels[cri.POD_UID] == "u2"


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
        context.abort(grpc.StatusCode.NOT_FOUND, "container not found")

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
    assert "is this its CRI socket?" in said(f"unix://{path}")


def test_a_server_without_the_cri_is_told_apart(path):
    with fake_cri.serving(path, {}) as endpoint:
        assert "answers gRPC, but not the CRI v1" in said(endpoint, "containers")


def test_a_refusal_is_told_in_the_runtimes_words(path):
    def refuse(_request, context):
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not yet\nready")

    with fake_cri.serving(path, {"ListContainers": refuse}) as endpoint:
        assert "ListContainers: FAILED_PRECONDITION: not yet ready" in said(endpoint, "containers")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", b"\xff" * 64])
def test_a_server_of_something_else_is_told_apart(path, answer):
    with talking(path, answer):
        assert "CRI socket?" in said(f"unix://{path}", seconds=5.0)


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
