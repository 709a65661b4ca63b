"""The latest decisions of the scheduler, bounded in bytes: one record a pod, the oldest leaves first."""

import time as clocks
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from corelane.scheduler.attempts import Attempt
from corelane.scheduler.decisions import DecisionReporter, OpenOutcome, Outcome
from corelane.scheduler.explain.record import STEP, Record, record
from corelane.scheduler.framework.plugin import Nomination
from corelane.scheduler.instructions import Bind
from corelane.scheduler.queue import Waiting

BUDGET: Final = 8 << 20
"""Bytes; at 5,000 nodes some 3,000 decisions."""
_STATES: Final = 128
"""Records that keep the chosen node's state, from which the allocator's terms are made."""
_STATES_SHARE: Final = 0.25
"""Of the budget; on nodes with many pods fewer states are kept."""
_COURSE: Final = 12
_SHARE: Final = 0.03
"""Share of the time that recording may take; beyond it, the comparison with other nodes is left out."""
_MOST_SECONDS: Final = 0.05
"""Time that may be saved up for recording."""


@dataclass(slots=True)
class History:
    """What is kept of one pod: its latest attempt."""

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
        clock: Callable[[], float] = clocks.time,
        timer: Callable[[], float] = clocks.thread_time,
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
        found = [one for one in self._histories.values() if (one.namespace, one.name) == (namespace, name)]
        return sorted(found, key=lambda one: -one.last.number)

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
        self._keep_state(made)
        self._put(waiting, made)
        self._allowance -= self._timer() - begun

    def _keep_state(self, made: Record) -> None:
        if made.before is not None:
            self._with_state.append(made)
            self._of_states += made.state_size
            while len(self._with_state) > 1 and self._too_many_states():
                oldest = self._with_state.popleft()
                self._of_states -= oldest.state_size
                oldest.before = oldest.request = None

    def _too_many_states(self) -> bool:
        return len(self._with_state) > _STATES or self._of_states > self._budget * _STATES_SHARE

    def bind_sent(self, now: float, bind: Bind) -> None:
        if history := self._histories.get(bind.pod.metadata.uid):
            history.last.assignments, history.last.annotations = bind.assignments, bind.annotations
            self._step(history, "claimed", bind.node, sum(map(len, bind.annotations.values())))

    def binding_ended(self, now: float, uid: str, outcome: Outcome, message: str) -> None:
        if history := self._histories.get(uid):
            self._step(history, outcome, message)

    def binding_open(self, now: float, uid: str, outcome: OpenOutcome, message: str) -> None:
        if history := self._histories.get(uid):
            self._step(history, outcome, message)

    def nominated(self, now: float, uid: str, nomination: Nomination) -> None:
        if history := self._histories.get(uid):
            count = len(nomination.victims)
            self._step(history, "nominated", f"{nomination.node}: {count} {'pod' if count == 1 else 'pods'}")

    def held(self, now: float, uid: str, plugin: str, seconds: float) -> None:
        if history := self._histories.get(uid):
            self._step(history, "permit-wait", f"{plugin}: {seconds:g} s")

    def denied(self, now: float, uid: str, plugin: str, message: str) -> None:
        if history := self._histories.get(uid):
            self._step(history, "permit-denied", f"{plugin}: {message}")

    def gone(self, now: float, uid: str) -> None:
        if history := self._histories.get(uid):
            history.ended = self._clock()

    # Bounds.

    def _put(self, waiting: Waiting, made: Record) -> None:
        pod = waiting.info.pod
        meta = pod.metadata
        history = self._histories.pop(meta.uid, None)
        if history is None:
            history = History(meta.namespace, meta.name, meta.uid, pod.spec.scheduler_name, made)
        else:
            made.course = history.last.course
        history.last = made
        self._histories[meta.uid] = history
        self._grow(history, made.size - history.size)

    def _step(self, history: History, step: str, text: str, more: int = 0) -> None:
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
