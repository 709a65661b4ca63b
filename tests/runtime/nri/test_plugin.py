"""The plugin's state machine: calls of containerd become events, answers become its responses."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.cpuset import CPUSet
from corelane.runtime.base import ResourceUpdate
from corelane.runtime.nri.plugin import Plugin, State
from corelane.runtime.nri.values import (
    Answer,
    Configured,
    ContainerCreating,
    ContainerUpdating,
    CPUResources,
    Event,
    Lost,
    RuntimeIdentity,
    ShutDown,
    Synchronized,
    Token,
)
from support import nri_wire
from support.nri_wire import PLUGIN, RUNTIME, container, payload, pod, request, response, status

CONFIGURE = {2: "containerd", 3: "1.7.24"}


class Conversation:
    """A plugin and what it sent so far; streams count by themselves."""

    def __init__(self, **options: object) -> None:
        self.plugin, self.reader, self.stream = Plugin(**options), nri_wire.Reader(), -1
        self.plugin.register()

    def sent(self) -> list[tuple[int, int, int, dict]]:
        return self.reader.feed(self.plugin.outgoing())

    def call(self, method: str, body: dict, **more: object) -> list[Event]:
        self.stream += 2
        return self.plugin.receive(request(self.stream, method, body, **more))

    def answer(self, token: Token, answer: Answer) -> dict:
        """The response's message, after success."""
        assert self.plugin.answer(token, answer)
        [(connection, stream, kind, envelope)] = self.sent()
        assert (connection, stream, kind, status(envelope)) == (PLUGIN, token.stream, 2, 0)
        return payload(envelope, 2)


def talking(configure: dict = CONFIGURE) -> Conversation:
    """A conversation after registration and an empty synchronisation."""
    conversation = Conversation()
    conversation.call("Configure", configure)
    [event] = conversation.call("Synchronize", {})
    conversation.plugin.answer(event.token, Answer())
    conversation.sent()
    return conversation


def cpus(text: str) -> ResourceUpdate:
    return ResourceUpdate(cpus=CPUSet.parse(text))


def test_registration_comes_first_and_names_the_plugin() -> None:
    [(connection, stream, kind, envelope)] = Conversation(name="corelane", index="90").sent()
    assert (connection, stream, kind) == (RUNTIME, 1, 1)
    assert envelope[1] == [b"nri.pkg.api.v1alpha1.Runtime"]
    assert envelope[2] == [b"RegisterPlugin"]
    assert payload(envelope, 3) == {1: [b"corelane"], 2: [b"90"]}


def test_configuration_subscribes_to_events_that_containerd_1_7_knows() -> None:
    conversation = Conversation()
    conversation.sent()
    [event] = conversation.call("Configure", CONFIGURE)
    assert event == Configured(RuntimeIdentity("containerd", "1.7.24", "", 2.0))
    [(_, _, _, envelope)] = conversation.sent()
    [mask] = payload(envelope, 2)[2]
    subscribed = {number for number in range(1, 16) if mask >> (number - 1) & 1}
    assert subscribed == {1, 2, 3, 4, 7, 8, 9, 10, 11}


def test_timeouts_and_versions_of_newer_runtimes_are_read() -> None:
    conversation = Conversation()
    [event] = conversation.call("Configure", {**CONFIGURE, 4: 5000, 5: 3500, 6: "v0.12.2"})
    assert event.runtime == RuntimeIdentity("containerd", "1.7.24", "v0.12.2", 3.5)
    [event] = conversation.call("Synchronize", {})
    assert event.timeout == 3.5
    [event] = conversation.call("Synchronize", {}, timeout_ns=1_500_000_000)
    assert event.timeout == 1.5


def test_synchronisation_lists_pods_and_containers() -> None:
    conversation = Conversation()
    conversation.call("Configure", CONFIGURE)
    conversation.sent()
    [event] = conversation.call(
        "Synchronize", {1: [pod("u1")], 2: [container("c1", "u1", state=3, cpus="0-3", shares=2048)]}
    )
    assert isinstance(event, Synchronized)
    [seen_pod], [seen] = event.pods, event.containers
    assert (seen_pod.uid, seen_pod.namespace, seen_pod.name, seen_pod.id) == (
        "u1",
        "default",
        "web",
        "sandbox-u1",
    )
    assert (seen_pod.cgroup_parent, seen_pod.runtime_handler) == ("/kubepods/podu1", "runc")
    assert seen_pod.labels["app"] == "web"
    assert seen_pod.annotations == {"note": "of the pod"}
    assert (seen.id, seen.sandbox, seen.name, seen.state) == ("c1", "sandbox-u1", "main", "running")
    assert (seen.pod_uid, seen.pod_name) == ("u1", "web")
    assert seen.cgroup == "/kubepods/podu1/c1"
    assert seen.resources == CPUResources(2048, -1, 100_000, "0-3", "")
    answer = conversation.answer(event.token, Answer(updates=(("c1", cpus("2")),)))
    assert [nri_wire.resources(update) for update in answer[1]] == [{"cpus": "2"}]


def test_synchronisation_in_chunks_is_one_event() -> None:
    conversation = Conversation()
    conversation.call("Configure", CONFIGURE)
    conversation.sent()
    for number in range(3):
        assert conversation.call("Synchronize", {1: [pod(f"u{number}")], 3: 1}) == []
        [(_, _, _, envelope)] = conversation.sent()
        assert payload(envelope, 2) == {2: [1]}
    [event] = conversation.call("Synchronize", {2: [container("c1", "u1")]})
    assert [item.uid for item in event.pods] == ["u0", "u1", "u2"]
    assert [item.id for item in event.containers] == ["c1"]
    assert conversation.answer(event.token, Answer()) == {}


def test_a_container_being_created_is_adjusted_and_others_are_updated() -> None:
    conversation = talking()
    [event] = conversation.call("CreateContainer", {1: pod("u1"), 2: container("new", "u1")})
    assert isinstance(event, ContainerCreating)
    assert (event.pod.uid, event.container.id, event.timeout) == ("u1", "new", 2.0)
    adjust = ResourceUpdate(
        cpus=CPUSet.parse("4-5"), mems=CPUSet.parse("0"), quota_us=None, period_us=50_000, shares_milli=2000
    )
    answer = conversation.answer(
        event.token,
        Answer(
            adjust, (("old", cpus("0-3")), ("older", ResourceUpdate(quota_us=20_000)), ("new", cpus("9")))
        ),
    )
    assert nri_wire.resources(answer[1][0]) == {
        "cpus": "4-5", "mems": "0", "quota": -1, "period": 50_000, "shares": 2048,
    }  # fmt: skip
    updates = [(nri_wire.decode(update)[1][0].decode(), nri_wire.resources(update)) for update in answer[2]]
    assert updates == [("old", {"cpus": "0-3"}), ("older", {"quota": 20_000})]


def test_an_adjustment_gives_only_the_fields_that_are_given() -> None:
    conversation = talking()
    [event] = conversation.call("CreateContainer", {1: pod("u1"), 2: container("new", "u1")})
    answer = conversation.answer(event.token, Answer(cpus("1")))
    assert nri_wire.resources(answer[1][0]) == {"cpus": "1"}


def test_an_answer_without_adjustment_is_empty() -> None:
    conversation = talking()
    [event] = conversation.call("CreateContainer", {1: pod("u1"), 2: container("new", "u1")})
    assert conversation.answer(event.token, Answer()) == {}


def test_two_updates_of_one_container_are_sent_as_the_last_one() -> None:
    conversation = talking()
    [event] = conversation.call("CreateContainer", {1: pod("u1"), 2: container("new", "u1")})
    answer = conversation.answer(event.token, Answer(updates=(("a", cpus("1")), ("a", cpus("2")))))
    assert [nri_wire.resources(update) for update in answer[2]] == [{"cpus": "2"}]


def test_a_failed_update_of_another_container_does_not_fail_the_creation() -> None:
    conversation = talking()
    [event] = conversation.call("CreateContainer", {1: pod("u1"), 2: container("new", "u1")})
    answer = conversation.answer(event.token, Answer(updates=(("a", cpus("1")),)))
    assert nri_wire.decode(answer[2][0])[3] == [1]


def test_an_empty_set_is_refused_and_the_call_can_still_be_answered() -> None:
    conversation = talking()
    [event] = conversation.call("CreateContainer", {1: pod("u1"), 2: container("new", "u1")})
    with pytest.raises(ValueError, match="cpus is an empty set"):
        conversation.plugin.answer(event.token, Answer(ResourceUpdate(cpus=CPUSet())))
    assert conversation.answer(event.token, Answer()) == {}


def test_a_call_is_answered_once() -> None:
    conversation = talking()
    [event] = conversation.call("CreateContainer", {1: pod("u1"), 2: container("new", "u1")})
    assert conversation.plugin.answer(event.token, Answer())
    assert not conversation.plugin.answer(event.token, Answer(cpus("1")))
    assert not conversation.plugin.answer(Token(99, event.token.stream), Answer())
    assert len(conversation.sent()) == 1


def test_calls_may_overlap_and_are_answered_in_any_order() -> None:
    conversation = talking()
    [first] = conversation.call("CreateContainer", {1: pod("u1"), 2: container("a", "u1")})
    [second] = conversation.call("CreateContainer", {1: pod("u2"), 2: container("b", "u2")})
    assert nri_wire.resources(conversation.answer(second.token, Answer(cpus("2")))[1][0]) == {"cpus": "2"}
    assert nri_wire.resources(conversation.answer(first.token, Answer(cpus("1")))[1][0]) == {"cpus": "1"}


def updating(requested: dict) -> tuple[Conversation, ContainerUpdating]:
    conversation = talking()
    body = {1: pod("u1"), 2: container("c", "u1", state=3, cpus="0-3"), 3: {2: requested}}
    [event] = conversation.call("UpdateContainer", body)
    assert isinstance(event, ContainerUpdating)
    return conversation, event


@pytest.mark.parametrize(
    ("requested", "update", "sent"),
    [
        ({6: "4-7"}, cpus("0-3"), [{"cpus": "0-3"}]),
        ({6: "0-3"}, cpus("0-3"), []),
        ({2: {1: 50_000}}, cpus("0-3"), []),
        ({2: {1: 50_000}}, cpus("1"), [{"cpus": "1"}]),
        ({2: {1: 50_000}}, ResourceUpdate(quota_us=None), [{"quota": -1}]),
        ({2: {1: 0}}, ResourceUpdate(quota_us=None), []),
        ({}, ResourceUpdate(), []),
    ],
)
def test_an_update_is_answered_only_where_it_would_leave_other_values(
    requested: dict, update: ResourceUpdate, sent: list[dict]
) -> None:
    conversation, event = updating(requested)
    answer = conversation.answer(event.token, Answer(updates=(("c", update),)))
    assert [nri_wire.resources(item) for item in answer.get(1, [])] == sent


def test_an_update_may_change_other_containers_too() -> None:
    conversation, event = updating({6: "0-3"})
    answer = conversation.answer(event.token, Answer(updates=(("c", cpus("0-3")), ("d", cpus("5")))))
    assert [nri_wire.decode(item)[1] for item in answer[1]] == [[b"d"]]


POD_EVENTS = {
    "RunPodSandbox": (1, "PodStarted"),
    "StopPodSandbox": (2, "PodStopped"),
    "RemovePodSandbox": (3, "PodRemoved"),
}
CONTAINER_EVENTS = {
    "PostStartContainer": (7, "ContainerStarted"),
    "PostUpdateContainer": (9, "ContainerUpdated"),
    "StopContainer": (10, "ContainerStopped"),
    "RemoveContainer": (11, "ContainerRemoved"),
}


@pytest.mark.parametrize("method", [*POD_EVENTS, *CONTAINER_EVENTS])
def test_notifications_come_as_state_changes_or_as_calls_of_their_own(method: str) -> None:
    number, kind = (POD_EVENTS | CONTAINER_EVENTS)[method]
    conversation = talking()
    [old] = conversation.call("StateChange", {1: number, 2: pod("u1"), 3: container("c", "u1")})
    [new] = conversation.call(method, {1: pod("u1"), 2: container("c", "u1")})
    assert old == new
    assert new.kind == kind
    assert new.pod.uid == "u1"
    for _, _, _, envelope in conversation.sent():
        assert (status(envelope), payload(envelope, 2)) == (0, {})


def test_events_that_are_unknown_are_answered_and_skipped() -> None:
    conversation = talking()
    assert conversation.call("StateChange", {1: 77}) == []
    [(_, _, _, envelope)] = conversation.sent()
    assert status(envelope) == 0


def test_calls_that_are_unknown_get_the_status_unimplemented() -> None:
    conversation = talking()
    assert conversation.call("ValidateContainerAdjustment", {}) == []
    assert conversation.call("Configure", {}, service="other") == []
    assert [status(envelope) for _, _, _, envelope in conversation.sent()] == [12, 12]


def test_shutdown_is_reported() -> None:
    conversation = talking()
    assert conversation.call("Shutdown", {}) == [ShutDown()]


def test_a_refused_registration_loses_the_connection() -> None:
    conversation = Conversation()
    [event] = conversation.plugin.receive(response(1, {}, 2, "invalid plugin index"))
    assert event == Lost("RegisterPlugin: status 2: invalid plugin index")
    assert conversation.plugin.state is State.CLOSED


def test_the_response_to_the_registration_may_come_after_the_configuration() -> None:
    conversation = Conversation()
    conversation.call("Configure", CONFIGURE)
    assert conversation.plugin.receive(response(1, {})) == []
    assert len(conversation.call("Synchronize", {})) == 1


@pytest.mark.parametrize("method", ["Synchronize", "CreateContainer", "StateChange"])
def test_a_call_out_of_order_loses_the_connection(method: str) -> None:
    [event] = Conversation().call(method, {})
    assert event == Lost(f"NRI: {method} while registering")


def test_a_lost_connection_says_so_once_and_takes_nothing_more() -> None:
    conversation = talking()
    [creating] = conversation.call("CreateContainer", {1: pod("u1"), 2: container("new", "u1")})
    assert conversation.plugin.close("ended") == [Lost("ended")]
    assert conversation.plugin.close("again") == []
    assert conversation.call("CreateContainer", {}) == []
    assert not conversation.plugin.answer(creating.token, Answer())
    assert conversation.plugin.outgoing() == b""


def everything() -> bytes:
    """A whole conversation from containerd's side."""
    return b"".join(
        [
            request(1, "Configure", CONFIGURE),
            response(1, {}),
            request(3, "Synchronize", {1: [pod("u0")], 3: 1}),
            request(5, "Synchronize", {2: [container("c0", "u0")]}),
            request(7, "CreateContainer", {1: pod("u1"), 2: container("c1", "u1")}),
            request(9, "StateChange", {1: 7, 2: pod("u1"), 3: container("c1", "u1")}),
            request(11, "UpdateContainer", {1: pod("u1"), 2: container("c1", "u1"), 3: {2: {6: "1"}}}),
            request(13, "StopContainer", {1: pod("u1"), 2: container("c1", "u1")}),
            request(15, "RemovePodSandbox", {1: pod("u1")}),
        ]
    )


@given(st.lists(st.integers(0, len(everything())), max_size=20))
def test_any_split_of_the_bytes_gives_the_same_events(cuts: list[int]) -> None:
    whole, split, data = Conversation().plugin, Conversation().plugin, everything()
    at = [0, *sorted(cuts), len(data)]
    events = [event for start, end in pairwise(at) for event in split.receive(data[start:end])]
    assert events == whole.receive(data)
    assert len(events) == 7
    assert split.outgoing() == whole.outgoing()


@given(st.binary(max_size=300), st.integers(0, len(everything())))
def test_garbage_after_any_part_of_a_conversation_never_raises(garbage: bytes, after: int) -> None:
    plugin = Conversation().plugin
    plugin.receive(everything()[:after])
    plugin.receive(garbage)
    plugin.receive(garbage)
    lost = plugin.state is State.CLOSED
    assert plugin.close("over") == ([] if lost else [Lost("over")])


BODIES = st.binary(max_size=40)


@given(
    st.sampled_from(
        ["Configure", "Synchronize", "CreateContainer", "UpdateContainer", "StateChange", "RunPodSandbox"]
    ),
    BODIES,
)
def test_a_call_with_any_body_is_an_event_or_loses_the_connection(method: str, body: bytes) -> None:
    plugin = talking().plugin
    envelope = nri_wire.encode({1: nri_wire.SERVICE, 2: method, 3: body})
    for event in plugin.receive(nri_wire.frame(1, nri_wire.ttrpc(99, 1, envelope))):
        if isinstance(event, Synchronized | ContainerCreating | ContainerUpdating):
            assert plugin.answer(event.token, Answer(cpus("1"), (("x", cpus("2")),)))
