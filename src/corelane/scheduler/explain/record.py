"""A decision as the scheduler keeps it: values and codes, without sentences; small, and of a known size.

Recording is on the path of every pod, so that nothing is computed here which the attempt does not have:
sentences, and the allocator's terms, are made when a record is read.
"""

import time
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from corelane.cpuset import CPUSet
from corelane.node.ledger import NodeState
from corelane.scheduler.cycle.attempts import Attempt
from corelane.scheduler.framework.plugin import NodeReason, Nomination
from corelane.scheduler.instructions import Bind
from corelane.scheduler.queue.waiting import Waiting
from corelane.scheduler.state import DecisionReporter, OpenOutcome, Outcome
from corelane.workload.request import PodRequest

NAMES: Final = 16
"""Node names kept of each group."""
STEP: Final = 200
"""Bytes of a step, about."""
GROUPS: Final = 32
"""Groups kept of a decision; further ones are counted together."""


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that one plugin rejected for one reason; `names` are the first of `count`."""

    plugin: str
    reason: NodeReason | None
    """None where only the plugin is known."""
    resolvable: bool
    count: int
    names: tuple[str, ...]


@dataclass(slots=True)
class Record:
    """The outcome of one attempt. Times are in seconds since the epoch."""

    time: float
    number: int
    attempt: int
    detailed: bool = True
    """Whether the comparison with other nodes was recorded."""
    node: str = ""
    nodes: int = 0
    feasible: int = 0
    kind: str = ""
    """The kind of the chosen node: how its CPUs are known."""
    generation: int = 0
    groups: tuple[Group, ...] = ()
    candidates: tuple[str, ...] = ()
    totals: tuple[float, ...] = ()
    weights: tuple[tuple[str, float], ...] = ()
    """Plugin and weight of each Score; one object for many records."""
    scores: "array[float]" = field(default_factory=lambda: array("d"))
    """One number for each candidate, of each Score in turn."""
    before: NodeState | None = None
    """The chosen node before the pod; only of the latest records."""
    request: PodRequest | None = None
    """The request that was admitted into `before`."""
    assignments: Mapping[str, CPUSet] = field(default_factory=dict)
    """Container to the CPUs proposed."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations sent with the binding; the reasons for the CPUs are among them."""
    course: list[tuple[float, str, str]] = field(default_factory=list)
    """Time, step and detail of what followed."""

    @property
    def terms(self) -> tuple[tuple[str, float, tuple[float, ...]], ...]:
        """Plugin, weight, and its score for each candidate."""
        count = len(self.candidates)
        of_plugin = [tuple(self.scores[i : i + count]) for i in range(0, len(self.scores), count or 1)]
        named = zip(self.weights, of_plugin, strict=True)
        return tuple((name, weight, values) for (name, weight), values in named)

    @property
    def size(self) -> int:
        """Bytes of this record, about: names and reasons are shared with the cluster's own values.

        Steps and CPUs that come later, and the node's state, are not counted.
        """
        groups = 300 * len(self.groups) + self.scores.itemsize * len(self.scores)
        return 1200 + groups + STEP * len(self.course)

    @property
    def state_size(self) -> int:
        """Bytes of the node's state, about: its tables, and what is kept of pods that are gone."""
        return 2000 + 160 * len(self.before.pods) if self.before is not None else 0


def record(
    time: float, number: int, tries: int, attempt: Attempt, *, names: int = NAMES, detailed: bool = True
) -> Record:
    """Return the record of an attempt; without its comparison with other nodes unless `detailed`."""
    node = attempt.node
    made = Record(time, number, tries, detailed=detailed)
    if node is not None:
        made.node, made.kind = node.name, node.cpus.kind.value
        made.generation = node.ledger.generation if node.ledger else 0
        made.candidates = (node.name,)
    if detailed or node is None:
        made.nodes, made.feasible = attempt.considered, attempt.feasible
        made.groups = tuple(grouped(attempt, names))
    if node is None or not detailed:
        return made
    made.before, made.request = node.cpu_state, attempt.cycle.pod.request
    ranked = attempt.ranked
    made.candidates = tuple(one.name for one in ranked)
    if len(ranked) > 1:
        terms, places = attempt.terms(ranked), range(len(ranked))
        made.weights = _shared(tuple((plugin, weight) for plugin, weight, _ in terms))
        made.scores = array("d", [value for _, _, values in terms for value in values])
        made.totals = tuple(sum(weight * values[i] for _, weight, values in terms) for i in places)
    return made


@lru_cache(64)
def _shared(weights: tuple[tuple[str, float], ...]) -> tuple[tuple[str, float], ...]:
    """One object for equal values."""
    return weights


def grouped(attempt: Attempt, names: int = NAMES) -> Iterator[Group]:
    """Yield the reasons by which nodes were rejected, that of most nodes first."""
    if attempt.rejected is not None:
        rejected = attempt.rejected
        for why in rejected.reasons:
            yield Group(rejected.plugin, why, rejected.resolvable, 0, ())
        return
    rest = 0
    for number, (rejection, count, first) in enumerate(attempt.groups(names, GROUPS)):
        if number >= GROUPS:
            rest += count
            continue
        reasons: tuple[NodeReason | None, ...] = rejection.reasons or (None,)
        for reason in reasons:
            yield Group(rejection.plugin, reason, rejection.resolvable, count, first)
    if rest:
        yield Group("", None, True, rest, ())


BUDGET: Final = 8 << 20
"""Bytes; at 5,000 nodes some 3,000 decisions."""
_STATES: Final = 128
"""Records that keep the chosen node's state, from which the allocator's terms are made."""
_STATES_SHARE: Final = 0.25
"""Share of the budget; on nodes with many pods fewer states are kept."""
_COURSE: Final = 12
_SHARE: Final = 0.03
"""Share of the time that recording may take; beyond it, the comparison with other nodes is left out."""
_MOST_SECONDS: Final = 0.05
"""Time that may be saved up for recording."""


@dataclass(slots=True)
class History:
    """The latest attempt of one pod."""

    namespace: str
    name: str
    uid: str
    scheduler: str
    last: Record
    size: int = 0
    ended: float = 0.0
    """When the pod ended or was deleted; 0 while it exists."""


class DecisionRing(DecisionReporter):
    """Records decisions; see the module. `clock` gives seconds since the epoch, `timer` CPU time."""

    def __init__(
        self,
        *,
        budget: int = BUDGET,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.thread_time,
    ) -> None:
        self._budget = budget
        self._clock = clock
        self._timer, self._last, self._allowance = timer, timer(), _MOST_SECONDS
        self._histories: OrderedDict[str, History] = OrderedDict()
        self._with_state: deque[Record] = deque()
        self._of_states = 0
        """Bytes of these records' states."""
        self._number = 0
        self._of_records = 0

    def __len__(self) -> int:
        return len(self._histories)

    @property
    def bytes(self) -> int:
        """Bytes of all that is kept, about."""
        return self._of_records + self._of_states

    def of(self, namespace: str, name: str) -> list[History]:
        """Return what is kept of the pods of this name, the latest decision first."""
        histories = self._histories.values()
        of_name = (one for one in histories if (one.namespace, one.name) == (namespace, name))
        return sorted(of_name, key=lambda one: -one.last.number)

    def latest(self, count: int) -> list[History]:
        """Return the pods decided on most recently, the latest first."""
        return sorted(self._histories.values(), key=lambda one: -one.last.number)[:count]

    # What the core reports.

    def attempted(self, now: float, waiting: Waiting, attempt: Attempt) -> None:
        if attempt.unfinished:
            return
        self._number += 1
        begun = self._timer()
        self._allowance = min(_MOST_SECONDS, self._allowance + _SHARE * (begun - self._last))
        detailed, self._last = self._allowance > 0, begun
        made = record(self._clock(), self._number, waiting.attempts, attempt, detailed=detailed)
        if made.before is not None:
            self._with_state.append(made)
            self._of_states += made.state_size
            most = self._budget * _STATES_SHARE
            while (count := len(self._with_state)) > 1 and (count > _STATES or self._of_states > most):
                oldest = self._with_state.popleft()
                self._of_states -= oldest.state_size
                oldest.before = oldest.request = None
        pod, meta = waiting.info.pod, waiting.info.pod.metadata
        history = self._histories.pop(meta.uid, None)
        if history is None:
            history = History(meta.namespace, meta.name, meta.uid, pod.spec.scheduler_name, made)
        else:
            made.course = history.last.course
        history.last = made
        self._histories[meta.uid] = history
        self._grow(history, made.size - history.size)
        self._allowance -= self._timer() - begun

    def bind_sent(self, now: float, bind: Bind) -> None:
        if history := self._histories.get(bind.pod.metadata.uid):
            history.last.assignments, history.last.annotations = bind.assignments, bind.annotations
            self._step(history.uid, "claimed", bind.node, sum(map(len, bind.annotations.values())))

    def binding_ended(self, now: float, uid: str, outcome: Outcome, message: str) -> None:
        self._step(uid, outcome, message)

    def binding_open(self, now: float, uid: str, outcome: OpenOutcome, message: str) -> None:
        self._step(uid, outcome, message)

    def nominated(self, now: float, uid: str, nomination: Nomination) -> None:
        count = len(nomination.victims)
        self._step(uid, "nominated", f"{nomination.node}: {count} {'pod' if count == 1 else 'pods'}")

    def held(self, now: float, uid: str, plugin: str, seconds: float) -> None:
        self._step(uid, "permit-wait", f"{plugin}: {seconds:g} s")

    def denied(self, now: float, uid: str, plugin: str, message: str) -> None:
        self._step(uid, "permit-denied", f"{plugin}: {message}")

    def gone(self, now: float, uid: str) -> None:
        if history := self._histories.get(uid):
            history.ended = self._clock()

    # Bounds.

    def _step(self, uid: str, step: str, text: str, more: int = 0) -> None:
        history = self._histories.get(uid)
        if history is None:
            return
        course = history.last.course
        course.append((self._clock(), step, text))
        if len(course) > _COURSE:
            del course[0]
        self._grow(history, STEP + more)

    def _grow(self, history: History, size: int) -> None:
        history.size += size
        self._of_records += size
        while self.bytes > self._budget and len(self._histories) > 1:
            _, oldest = self._histories.popitem(last=False)
            self._of_records -= oldest.size
