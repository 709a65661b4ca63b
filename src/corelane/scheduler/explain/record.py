"""A decision as the scheduler keeps it: values and codes, without sentences; small, and of a known size.

Recording is on the path of every pod, so that nothing is computed here which the attempt does not have:
sentences, and the allocator's terms, are made when a record is read.
"""

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from corelane.cpuset import CPUSet
from corelane.node import NodeState
from corelane.scheduler.attempts import Attempt
from corelane.scheduler.cache.nodes import NodeInfo
from corelane.scheduler.framework.plugin import NodeReason
from corelane.workload import PodRequest

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
    """What became of one attempt. Times are in seconds since the epoch."""

    time: float
    number: int
    attempt: int
    detailed: bool = True
    """Whether the comparison with other nodes was recorded."""
    node: str = ""
    nodes: int = 0
    feasible: int = 0
    kind: str = ""
    """How the chosen node's CPUs are known."""
    generation: int = 0
    groups: tuple[Group, ...] = ()
    candidates: tuple[str, ...] = ()
    totals: tuple[float, ...] = ()
    weights: tuple[tuple[str, float], ...] = ()
    """Plugin and weight of each Score; one object for many records."""
    scores: "array[float]" = field(default_factory=lambda: array("d"))
    """Of each Score in turn, one number for each candidate."""
    before: NodeState | None = None
    """The chosen node before the pod; only of the latest records."""
    request: PodRequest | None = None
    """What was admitted into `before`."""
    assignments: Mapping[str, CPUSet] = field(default_factory=dict)
    """Container to the CPUs proposed."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """As sent with the binding; the reasons for the CPUs are among them."""
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
    if detailed and node is not None:
        _compare(made, attempt, node)
    return made


def _compare(made: Record, attempt: Attempt, node: NodeInfo) -> None:
    """Add the next best nodes with their scores, and the state from which the allocator's terms are made."""
    made.before, made.request = node.cpu_state, attempt.cycle.pod.request
    ranked = attempt.ranked
    made.candidates = tuple(one.name for one in ranked)
    if len(ranked) > 1:
        terms = attempt.terms(ranked)
        made.weights = _shared(tuple((plugin, weight) for plugin, weight, _ in terms))
        made.scores = array("d", [value for _, _, values in terms for value in values])
        made.totals = tuple(
            sum(weight * values[i] for _, weight, values in terms) for i in range(len(ranked))
        )


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
    for number, (rejection, count, found) in enumerate(attempt.groups(names, GROUPS)):
        if number >= GROUPS:
            rest += count
            continue
        reasons: tuple[NodeReason | None, ...] = rejection.reasons or (None,)
        for reason in reasons:
            yield Group(rejection.plugin, reason, rejection.resolvable, count, found)
    if rest:
        yield Group("", None, True, rest, ())
