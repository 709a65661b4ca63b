"""Bindings under way: what is sent, sent again or looked up, and when a claim may be released. No I/O.

Theory of operation. A binding begins with its claim and ends when the informer shows the pod with a node, or
without existing; the scheduler's core calls `drop` then. Until that time it is in one of the `Phase`s. Only
an answer that proves that the pod was not bound releases the claim. After an answer that proves nothing (no
answer, a server error) the same binding is sent again, which is harmless where the first one was carried
out: the server answers 409. After a 409 the pod is read from the server, whose word settles it. A request
without an answer may be carried out until the server's own limit for requests is over, so a claim is not
released earlier than that (`LATE_SECONDS`), and then only if the pod is read without a node. A binding that
Permit plugins hold is not sent before all of them allow it; it ends when one denies it, or waits too long.

Due times are in a heap: a tick costs what is due, however many bindings are under way.
"""

import heapq
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from operator import attrgetter
from typing import Final, TypeAlias

from msgspec import Struct

from corelane import durations
from corelane.kube import translate
from corelane.kube.pod import Pod, PodSpec
from corelane.scheduler.events import (
    BindFailed,
    BindSucceeded,
    LookUpFailed,
    PermitDecided,
    PodLookedUp,
    PreBindFailed,
)
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.instructions import Bind, LookUpPod, SetNominatedNode, StopPreBind
from corelane.scheduler.queue.waiting import Waiting

LATE_SECONDS: Final = 65.0
"""Time in which a request without an answer may be carried out; kube-apiserver's own limit is 60 s."""
_FIRST_DELAY: Final = 1.0
_LONGEST_DELAY: Final = 10.0


class Phase(Enum):
    """The next step of a binding."""

    HELD = auto()
    """Not sent yet: Permit plugins answer with PermitDecided, until a due time."""
    SENT = auto()
    """The shell answers it with BindSucceeded, BindFailed or PreBindFailed."""
    SEND_AGAIN = auto()
    """At a due time."""
    LOOK_UP = auto()
    """At a due time."""
    LOOKING_UP = auto()
    """The shell answers with PodLookedUp or LookUpFailed."""
    BOUND = auto()
    """The server says so; the informer has yet to show it."""
    GONE = auto()
    """The pod no longer exists or is being deleted; the informer has yet to show it. No claim is left."""


@dataclass(slots=True, eq=False)
class Binding:
    """A pod that is being bound."""

    waiting: Waiting
    bind: Bind
    profile: Profile
    """Its plugins have reserved what the pod needs."""
    phase: Phase = Phase.SENT
    tries: int = 1
    """Requests about it that got no useful answer, and the one under way."""
    late_until: float = 0.0
    """Until when an earlier request may be carried out; 0 if every one was answered."""
    node_deleted: bool = False
    failure: str = ""
    """Message of the last answer."""
    recorded: bool = False
    """Whether its success has its event."""
    due: int = 0
    """Number of its valid heap entry."""
    held_by: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Permit plugins that have not allowed it: until when each waits, and for how long, in s."""

    @property
    def uid(self) -> str:
        return self.bind.pod.metadata.uid

    @property
    def doing(self) -> str:
        """The present step, as the reason why the pod is pending."""
        if self.phase is Phase.HELD:
            return f"held by Permit plugins {', '.join(self.held_by)}, for node {self.bind.node}"
        return f"being bound to {self.bind.node}"


class Bound(Struct, frozen=True):
    """The server has bound the pod; `pod` as it was read, None where the binding itself was answered."""

    binding: Binding
    pod: Pod | None = None


@dataclass(frozen=True, slots=True)
class Released:
    """The pod is certainly not bound: release its claim and try it again."""

    binding: Binding


@dataclass(frozen=True, slots=True)
class Waits:
    """The pod has no node now, but an earlier request may still be carried out: keep its claim."""

    binding: Binding
    seconds: float
    """Until the pod is read once more."""


@dataclass(frozen=True, slots=True)
class Vanished:
    """The pod does not exist any more, or is being deleted without a node: release its claim."""

    binding: Binding


@dataclass(frozen=True, slots=True)
class Denied:
    """A Permit plugin denies the binding, which was not sent: release its claim."""

    binding: Binding
    plugin: str


Step: TypeAlias = Bind | LookUpPod | Bound | Released | Waits | Vanished | Denied
"""The next step of the core: an instruction for the shell, or the end of a binding."""
BindingAnswer: TypeAlias = BindSucceeded | BindFailed | PreBindFailed | PodLookedUp | LookUpFailed


class Bindings:
    """All bindings under way, by the pod's UID."""

    def __init__(self) -> None:
        self._bindings: dict[str, Binding] = {}
        self._heap: list[tuple[float, int, str]] = []
        self._number = 0

    def __contains__(self, uid: str) -> bool:
        return uid in self._bindings

    def __len__(self) -> int:
        return len(self._bindings)

    def __iter__(self) -> Iterator[Binding]:
        return iter(self._bindings.values())

    def __getitem__(self, uid: str) -> Binding:
        return self._bindings[uid]

    def get(self, uid: str) -> Binding | None:
        return self._bindings.get(uid)

    def begin(self, waiting: Waiting, bind: Bind, profile: Profile) -> Bind:
        """Add a binding, and return it as the instruction to send it."""
        self._bindings[bind.pod.metadata.uid] = Binding(waiting, bind, profile)
        return bind

    def hold(
        self, waiting: Waiting, bind: Bind, profile: Profile, waits: Mapping[str, float], now: float
    ) -> None:
        """Add a binding that these Permit plugins hold, each for that many seconds at most."""
        held_by = {plugin: (now + seconds, seconds) for plugin, seconds in waits.items()}
        binding = Binding(waiting, bind, profile, held_by=held_by)
        self._bindings[binding.uid] = binding
        self._enter(binding, Phase.HELD, min(held_by.values())[0])

    def holds(self, uid: str) -> bool:
        """Return whether Permit plugins hold the pod's binding."""
        binding = self._bindings.get(uid)
        return binding is not None and binding.phase is Phase.HELD

    def decided(self, event: PermitDecided) -> Step | None:
        """Take the word of a Permit plugin; a denial counts whichever plugin it is from."""
        if not self.holds(event.uid):
            return None
        binding = self._bindings[event.uid]
        if not event.allowed:
            return self._denied(binding, event.plugin, event.message or f"denied by plugin {event.plugin}")
        binding.held_by.pop(event.plugin, None)
        if binding.held_by:
            self._enter(binding, Phase.HELD, min(binding.held_by.values())[0])
            return None
        self._enter(binding, Phase.SENT)
        return binding.bind

    def drop(self, uid: str) -> Binding | None:
        """Remove a binding, if it is there."""
        return self._bindings.pop(uid, None)

    def node_deleted(self, name: str) -> Iterator[StopPreBind]:
        """Send no more bindings to this node, also not those that wait to be sent."""
        for binding in self._bindings.values():
            if binding.bind.node == name:
                binding.node_deleted = True
                yield from stopped(binding, f"node {name} was deleted")

    def unsendable(self, bind: Bind) -> str:
        """Return why this instruction must not be carried out any more; "" if it may."""
        binding = self._bindings.get(bind.pod.metadata.uid)
        if binding is None or binding.bind is not bind or binding.phase is not Phase.SENT:
            return f"pod {bind.pod.title} no longer waits for this binding"
        return f"node {bind.node} was deleted" if binding.node_deleted else ""

    def handle(self, answer: BindingAnswer) -> Step | None:
        """Take an answer of the shell, and return what follows at once; answers to nothing are ignored."""
        binding = self._bindings.get(answer.uid)
        if binding is None:
            return None
        match answer:
            case BindSucceeded():
                return self._bound(binding)
            case LookUpFailed() if binding.phase is Phase.LOOKING_UP:
                self._after_delay(binding, answer, Phase.LOOK_UP)
            case PodLookedUp(now, _, pod) if binding.phase is Phase.LOOKING_UP:
                if pod is not None and pod.spec.node_name:
                    return self._bound(binding, pod)
                if pod is None or pod.metadata.deletion_timestamp:
                    self._enter(binding, Phase.GONE)
                    return Vanished(binding)
                return self._not_bound(binding, now)
            case BindFailed(now) if binding.phase is Phase.SENT:
                binding.failure = f"binding rejected: {answer.message}"
                if answer.outcome == "rejected":
                    return self._not_bound(binding, now)
                if answer.outcome != "throttled":
                    binding.late_until = max(binding.late_until, now + LATE_SECONDS)
                if answer.outcome == "conflict":
                    binding.failure = f"binding to {binding.bind.node}: {answer.message}"
                    return self._look_up(binding)
                self._after_delay(binding, answer, Phase.SEND_AGAIN)
            case PreBindFailed() if binding.phase is Phase.SENT:
                binding.failure = f"running PreBind plugin {answer.plugin!r}: {answer.message}"
                return self._not_bound(binding, answer.now)
        return None

    def due(self, now: float) -> Iterator[Step]:
        """Yield what is due."""
        while self._advance() and self._heap[0][0] <= now:
            binding = self._bindings[heapq.heappop(self._heap)[2]]
            binding.due = 0
            if binding.phase is Phase.HELD:
                (_, seconds), plugin = min((times, plugin) for plugin, times in binding.held_by.items())
                waited = f"rejected due to timeout after waiting {durations.text(seconds)} at plugin {plugin}"
                yield self._denied(binding, plugin, waited)
            elif binding.phase is Phase.SEND_AGAIN and not binding.node_deleted:
                binding.phase = Phase.SENT
                yield binding.bind
            else:
                yield self._look_up(binding)

    def next_time(self) -> float | None:
        """Return when something is due; None for never."""
        return self._heap[0][0] if self._advance() else None

    # Permit.

    def _denied(self, binding: Binding, plugin: str, message: str) -> Denied:
        binding.failure = message
        del self._bindings[binding.uid]
        return Denied(binding, plugin)

    # Answers.

    def _bound(self, binding: Binding, pod: Pod | None = None) -> Step:
        self._enter(binding, Phase.BOUND)
        return Bound(binding, pod)

    def _not_bound(self, binding: Binding, now: float) -> Step | None:
        """The pod has no node now; it may get one only by a request that was not answered."""
        if now < binding.late_until:
            self._enter(binding, Phase.LOOK_UP, binding.late_until)
            return Waits(binding, binding.late_until - now)
        if binding.late_until and binding.phase is not Phase.LOOKING_UP:
            return self._look_up(binding)
        del self._bindings[binding.uid]
        return Released(binding)

    def _look_up(self, binding: Binding) -> LookUpPod:
        self._enter(binding, Phase.LOOKING_UP)
        return LookUpPod(binding.bind.pod)

    # Times.

    def _after_delay(self, binding: Binding, answer: BindFailed | LookUpFailed, phase: Phase) -> None:
        delay = max(answer.retry_after, min(_LONGEST_DELAY, _FIRST_DELAY * 2.0 ** min(binding.tries - 1, 30)))
        binding.tries += 1
        self._enter(binding, phase, answer.now + delay)

    def _enter(self, binding: Binding, phase: Phase, at: float | None = None) -> None:
        binding.phase, binding.due = phase, 0
        if at is not None:
            self._number += 1
            binding.due = self._number
            heapq.heappush(self._heap, (at, self._number, binding.uid))

    def _advance(self) -> bool:
        """Remove void entries from the front of the heap; return whether an entry is left."""
        while self._heap:
            _, number, uid = self._heap[0]
            binding = self._bindings.get(uid)
            if binding is not None and binding.due == number:
                return True
            heapq.heappop(self._heap)
        return False


def stopped(binding: Binding, why: str) -> Iterator[StopPreBind]:
    """Yield the end of the plugins' work for a binding that is not to be sent any more, if there is any."""
    if binding.bind.work and binding.phase is Phase.SENT:
        yield StopPreBind(binding.uid, why)


def expected_node(binding: Binding) -> Iterator[SetNominatedNode]:
    """Yield the node to be shown in the pod's status, where a Permit or PreBind takes its time (KEP-5278)."""
    pod, node = binding.waiting.info.pod, binding.bind.node
    takes_time = binding.phase is Phase.HELD or binding.bind.work
    if takes_time and pod.status.nominated_node_name != node:
        yield SetNominatedNode(pod, node)


class BindingOrder:
    """By node, the bindings that wait for an earlier one: those to a node whose kubelet allocates CPUs.

    Such a kubelet gives CPUs to pods in the order in which it sees them, and the scheduler has replayed that.
    Two bindings in flight may be carried out in the other order; then a pod that fitted in the replay may be
    rejected.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Bind]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def holds(self, bind: Bind) -> bool:
        """Return whether a binding waits now; another is its node's first until `after` is called for it."""
        if not bind.in_order:
            return False
        if bind.node in self._waiting:
            self._waiting[bind.node].append(bind)
            return True
        self._waiting[bind.node] = deque()
        return False

    def after(self, bind: Bind) -> Bind | None:
        """Return the binding that waited for this one, which was answered or not sent."""
        if not bind.in_order:
            return None
        if waiting := self._waiting[bind.node]:
            return waiting.popleft()
        del self._waiting[bind.node]
        return None


_but_node: Final = attrgetter(*(name for name in PodSpec.__struct_fields__ if name != "node_name"))
"""All fields of a spec but the node's name."""


def as_sent(binding: Binding, pod: Pod) -> bool:
    """Whether a bound pod has the node and annotations of this scheduler's binding."""
    sent, annotations = binding.bind, pod.metadata.annotations
    return pod.spec.node_name == sent.node and sent.annotations.items() <= annotations.items()


def is_claimed(binding: Binding, pod: Pod) -> bool:
    """Whether a bound pod is just as it was claimed."""
    before, after, bind = binding.waiting.info.pod, pod.metadata, binding.bind
    if after.labels != before.metadata.labels or after.deletion_timestamp:
        return False
    if after.annotations != {**before.metadata.annotations, **bind.annotations}:
        return False
    return _but_node(pod.spec) == _but_node(before.spec)


def requests_changed(old: Pod, new: Pod) -> bool:
    before, after = old.metadata, new.metadata
    if bool(before.deletion_timestamp) != bool(after.deletion_timestamp):
        return True
    if old.status != new.status and translate.resized(old) != translate.resized(new):
        return True
    if before.owner_references != after.owner_references:
        return True
    return (old.spec, before.labels, before.annotations) != (new.spec, after.labels, after.annotations)


def status_changed(old: Pod, new: Pod) -> bool:
    """Whether what counts of a placed pod's status changed: for exporters' zones, and for preemption."""
    before, after = old.status, new.status
    if old.metadata.deletion_timestamp != new.metadata.deletion_timestamp:
        return True
    return (before.phase, before.start_time) != (after.phase, after.start_time)
