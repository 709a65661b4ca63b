"""The plugin's side of one NRI connection, sans I/O: bytes in, events out; answers in, bytes out.

Order of things (containerd/nri, pkg/adaptation): the plugin calls RegisterPlugin within 5 s of connecting.
The runtime calls Configure (the answer is the set of events wanted), then Synchronize with all pods and
containers (from v0.7 in several calls where 4 MiB do not hold them: `more` is set in all but the last, and
in the answers to them), then one call an event. It holds one lock during a call and until the updates in
its answer are applied, and within that lock serves no other container and no CRI update: a handler that
makes a CRI call waits for itself.

What the runtime does with an answer:

* CreateContainer: first applies `update` to other containers (a failure is only logged; unknown ids are
  skipped), then puts `adjust` into the new container's OCI specification. An error status fails the
  creation, so this class never sends one. No answer within the request timeout (2 s unless configured)
  closes the plugin's connection, and the container is created without it. The container's CRI status goes
  on showing the CPUs of the request; the runtime's record is the OCI specification, which later updates
  start from.
* UpdateContainer: the fields of an update of this same container replace those of the request; its status and
  record show them afterwards.
* Two plugins that set the same field of the same container fail its creation ("both tried to set CPU
  pinning"), two connections of the same plugin too. That is why `acting_lock` is there.

Any bytes are accepted: what violates the protocol ends in `Lost`, after which nothing is read or written.
"""

import enum
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from corelane.runtime.nri import messages, ttrpc
from corelane.runtime.nri.messages import (
    EVENTS,
    PLUGIN,
    RUNTIME,
    container_of,
    message,
    parse,
    pod_of,
    resources_of,
)
from corelane.runtime.nri.ttrpc import PLUGIN_SERVICE, RUNTIME_SERVICE, ProtocolError
from corelane.runtime.nri.values import (
    DEFAULT_REQUEST_TIMEOUT,
    Answer,
    Configured,
    ContainerCreating,
    ContainerUpdating,
    Event,
    Lost,
    Notification,
    NotificationKind,
    NRIContainer,
    NRIPod,
    RuntimeIdentity,
    ShutDown,
    Synchronized,
    Token,
)

_OF_PODS: Final[dict[str, NotificationKind]] = {
    "RunPodSandbox": "PodStarted",
    "StopPodSandbox": "PodStopped",
    "RemovePodSandbox": "PodRemoved",
}
_OF_CONTAINERS: Final[dict[str, NotificationKind]] = {
    "PostStartContainer": "ContainerStarted",
    "PostUpdateContainer": "ContainerUpdated",
    "StopContainer": "ContainerStopped",
    "RemoveContainer": "ContainerRemoved",
}
_QUESTIONS: Final = ("CreateContainer", "UpdateContainer")
_SUBSCRIPTION: Final = sum(1 << (EVENTS[name] - 1) for name in (*_OF_PODS, *_OF_CONTAINERS, *_QUESTIONS))
_NAMES: Final = {number: name for name, number in EVENTS.items()}


class State(enum.Enum):
    """How far the connection has come."""

    NEW = "new"
    REGISTERING = "registering"
    CONFIGURED = "configured"
    SYNCHRONIZED = "synchronized"
    CLOSED = "closed"


class Plugin:
    """One connection to one runtime; after `Lost` a new one is needed. `session` marks its tokens."""

    def __init__(self, name: str = "corelane", index: str = "90", session: int = 0) -> None:
        """Take a name of letters, digits and `_.+-`. `index`, two digits, orders plugins."""
        self.state = State.NEW
        self.runtime = RuntimeIdentity()
        self._name, self._index, self._session = name, index, session
        self._demultiplexer = ttrpc.Demultiplexer()
        self._server, self._client = ttrpc.Server(), ttrpc.Client()
        self._outgoing: list[bytes] = []
        self._open: dict[int, Callable[[Answer], Any]] = {}
        """Streams that wait for an answer, and how it becomes a message."""
        self._pods: list[NRIPod] = []
        self._containers: list[NRIContainer] = []

    def register(self) -> None:
        """Call RegisterPlugin: the first thing on a new connection."""
        assert self.state is State.NEW
        self.state = State.REGISTERING
        request = message("RegisterPluginRequest")(plugin_name=self._name, plugin_idx=self._index)
        _, data = self._client.call(RUNTIME, "RegisterPlugin", request.SerializeToString())
        self._outgoing.append(ttrpc.encode(RUNTIME_SERVICE, data))

    def outgoing(self) -> bytes:
        """Return the bytes to be sent, once."""
        data = b"".join(self._outgoing)
        self._outgoing.clear()
        return data

    def receive(self, data: bytes) -> list[Event]:
        """Return what these bytes complete. `Lost` is the last event of a connection."""
        events: list[Event] = []
        try:
            for frame in self._demultiplexer.receive(data) if self.state is not State.CLOSED else ():
                self._frame(frame, events)
        except ProtocolError as error:
            events += self.close(str(error))
        return events

    def close(self, reason: str) -> list[Event]:
        """End the connection, as when the stream has ended; `Lost` unless it was lost before."""
        if self.state is State.CLOSED:
            return []
        self.state = State.CLOSED
        self._open.clear()
        self._outgoing.clear()
        return [Lost(reason)]

    def answer(self, token: Token, answer: Answer) -> bool:
        """Answer a question; False where it was answered before or its connection is lost.

        Raises ValueError, leaving the question open, for a set of CPUs or memory nodes that is empty.
        """
        respond = self._open.get(token.stream) if token.session == self._session else None
        if respond is None:
            return False
        response = respond(answer)
        del self._open[token.stream]
        self._respond(token.stream, response)
        return True

    def _frame(self, frame: ttrpc.Frame, events: list[Event]) -> None:
        if frame.connection == PLUGIN_SERVICE:
            for request in self._server.receive(frame.payload):
                events += self._handle(request)
        elif frame.connection == RUNTIME_SERVICE:
            for response in self._client.receive(frame.payload):
                events += self._answered(response)

    def _answered(self, response: ttrpc.Response) -> list[Event]:
        """The registration is all that the runtime is asked."""
        if response.code == ttrpc.OK:
            return []
        return self.close(f"RegisterPlugin: status {response.code}: {response.message}")

    def _handle(self, request: ttrpc.Request) -> list[Event]:
        if request.service != PLUGIN or request.method not in _CALLS:
            text = f"{request.service}/{request.method} is not implemented"
            self._send(self._server.respond(ttrpc.Response(request.stream, b"", ttrpc.UNIMPLEMENTED, text)))
            return []
        states, body, handler = _CALLS[request.method]
        if self.state not in states:
            raise ProtocolError(f"NRI: {request.method} while {self.state.value}")
        return handler(self, request, _decode(body, request.payload))

    def _configure(self, request: ttrpc.Request, body: Any) -> list[Event]:
        self.state = State.CONFIGURED
        timeout = body.request_timeout / 1e3 if body.request_timeout > 0 else DEFAULT_REQUEST_TIMEOUT
        self.runtime = RuntimeIdentity(body.runtime_name, body.runtime_version, body.NRI_version, timeout)
        self._respond(request.stream, message("ConfigureResponse")(events=_SUBSCRIPTION))
        return [Configured(self.runtime)]

    def _synchronize(self, request: ttrpc.Request, body: Any) -> list[Event]:
        self._pods += map(pod_of, body.pods)
        self._containers += map(container_of, body.containers)
        if body.more:
            self._respond(request.stream, message("SynchronizeResponse")(more=True))
            return []
        self.state = State.SYNCHRONIZED
        pods, containers = tuple(self._pods), tuple(self._containers)
        self._pods, self._containers = [], []
        token = self._ask(request, messages.synchronized)
        return [Synchronized(token, pods, containers, self._timeout(request))]

    def _creating(self, request: ttrpc.Request, body: Any) -> list[Event]:
        container = container_of(body.container)
        token = self._ask(request, partial(messages.created, container_id=container.id))
        return [ContainerCreating(token, pod_of(body.pod), container, self._timeout(request))]

    def _updating(self, request: ttrpc.Request, body: Any) -> list[Event]:
        container, requested = container_of(body.container), resources_of(body.linux_resources)
        respond = partial(messages.updated, container=container, requested=requested)
        token, timeout = self._ask(request, respond), self._timeout(request)
        return [ContainerUpdating(token, pod_of(body.pod), container, requested, timeout)]

    def _state_change(self, request: ttrpc.Request, body: Any) -> list[Event]:
        self._respond(request.stream, message("Empty")())
        return _notification(_NAMES.get(body.event, ""), body)

    def _notified(self, request: ttrpc.Request, body: Any) -> list[Event]:
        self._respond(request.stream, message("Empty")())
        return _notification(request.method, body)

    def _shut_down(self, request: ttrpc.Request, _: Any) -> list[Event]:
        self._respond(request.stream, message("Empty")())
        return [ShutDown()]

    def _ask(self, request: ttrpc.Request, respond: Callable[[Answer], Any]) -> Token:
        self._open[request.stream] = respond
        return Token(self._session, request.stream)

    def _timeout(self, request: ttrpc.Request) -> float:
        return request.timeout_ns / 1e9 if request.timeout_ns > 0 else self.runtime.request_timeout

    def _respond(self, stream: int, body: Any) -> None:
        self._send(self._server.respond(ttrpc.Response(stream, body.SerializeToString())))

    def _send(self, data: bytes) -> None:
        self._outgoing.append(ttrpc.encode(PLUGIN_SERVICE, data))


def _notification(method: str, body: Any) -> list[Event]:
    if method in _OF_PODS:
        return [Notification(_OF_PODS[method], pod_of(body.pod))]
    if method in _OF_CONTAINERS:
        return [Notification(_OF_CONTAINERS[method], pod_of(body.pod), container_of(body.container))]
    return []


def _decode(name: str, payload: bytes) -> Any:
    try:
        return parse(name, payload)
    except ValueError:
        raise ProtocolError(f"NRI: {len(payload)} bytes that are not a {name}") from None


_Handler = Callable[[Plugin, ttrpc.Request, Any], list[Event]]
_LATER: Final = frozenset({State.CONFIGURED, State.SYNCHRONIZED})
_CALLS: Final[dict[str, tuple[frozenset[State], str, _Handler]]] = {
    "Configure": (frozenset({State.REGISTERING}), "ConfigureRequest", Plugin._configure),
    "Synchronize": (_LATER, "SynchronizeRequest", Plugin._synchronize),
    "CreateContainer": (_LATER, "ContainerRequest", Plugin._creating),
    "UpdateContainer": (_LATER, "UpdateContainerRequest", Plugin._updating),
    "StateChange": (_LATER, "StateChangeEvent", Plugin._state_change),
    "Shutdown": (_LATER | {State.REGISTERING}, "Empty", Plugin._shut_down),
    **dict.fromkeys(_OF_PODS, (_LATER, "PodRequest", Plugin._notified)),
    **dict.fromkeys(_OF_CONTAINERS, (_LATER, "ContainerRequest", Plugin._notified)),
}
"""Calls: the states in which each is allowed, its message and what answers it."""
