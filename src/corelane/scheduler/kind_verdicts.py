"""What plugins that look at amounts and CPUs only say of kinds of rows, asked once for each kind.

They are asked in plain numbers (`passes_kind`, `score_of_kind`): numpy takes a microsecond for each of some
fifty calls, however few rows there are.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from corelane.scheduler.cache.row_kinds import RowKind
from corelane.scheduler.framework.plugin import Cycle, Depends, FilterPlugin, ScorePlugin
from corelane.scheduler.plugin_forms import normalizes, part

Passes: TypeAlias = Callable[[Cycle, RowKind], bool]
Scored: TypeAlias = Callable[[Cycle, RowKind], float]
_MOST: Final = 1024


@dataclass(slots=True, eq=False)
class StateVerdict:
    """What plugins that depend on CPUS only say of a canonical state."""

    blame: int
    score: float
    estimate: float = 0.0
    """The part of the score that is an estimate."""
    verified: bool = False
    """Whether the estimate was replaced by what a node in this state answered."""


@dataclass(slots=True, eq=False)
class KindVerdict:
    """What is said of a kind of rows, but for their Node objects."""

    of_state: StateVerdict
    blame: int
    """Number of the filter of amounts that rejects, 0 for none."""
    score: float
    """The weighted sum of the scores of amounts."""


@dataclass(slots=True, frozen=True)
class KindForms:
    """The plugins of one shape that depend on pods, as they are asked about kinds."""

    filters: tuple[tuple[int, Passes], ...]
    scores: tuple[tuple[float, Scored], ...]

    @classmethod
    def of(
        cls, filters: Sequence[tuple[int, FilterPlugin]], scores: Iterable[tuple[ScorePlugin, float]]
    ) -> "KindForms | None":
        """Return the forms of these plugins; None where one of them has none."""
        of_pods: list[tuple[int, Any]] = [one for one in filters if part(one[1]) is Depends.PODS]
        passes = [(number, getattr(one, "passes_kind", None)) for number, one in of_pods]
        with_room: list[tuple[int, Any]] = [one for one in filters if part(one[1]) is Depends.CPUS]
        passes += [(i, getattr(one, "room_of_kind", None)) for i, one in with_room if hasattr(one, "room")]
        scored = [
            (weight, None if normalizes(one) else getattr(one, "score_of_kind", None))
            for one, weight in scores
            if part(one) is Depends.PODS
        ]
        if any(one is None for _, one in (*passes, *scored)):
            return None
        return cls(tuple(passes), tuple(scored))  # type: ignore[arg-type]

    def blame(self, cycle: Cycle, kind: RowKind) -> int:
        """Return the number of the first filter that rejects, 0 for none."""
        for number, passes in self.filters:
            if not passes(cycle, kind):
                return number
        return 0

    def score(self, cycle: Cycle, kind: RowKind) -> float:
        """Return the weighted sum of the scores."""
        total = 0.0
        for weight, scored in self.scores:
            total += weight * scored(cycle, kind)
        return total


class KindVerdicts(dict[RowKind, KindVerdict]):
    """What was said, by kind; a bounded number."""

    __slots__ = ()

    def keep(self, verdicts: Mapping[RowKind, KindVerdict]) -> None:
        if len(self) + len(verdicts) > _MOST:
            self.clear()
        self.update(verdicts)
