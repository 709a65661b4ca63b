"""What came of one attempt to place a pod, and the message about it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from corelane.reasons import Reason, sentence
from corelane.scheduler.cluster.columns import Rows
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.framework.plugin import Cycle, FilterPlugin, NodeReason, Rejection

MOST_REASONS: Final = 8
"""With more distinct reasons, their details are left out."""
RANKED: Final = 3
"""Nodes that an attempt names, the best first."""


class Rejections(Mapping[str, Rejection]):
    """Node name to its rejection; nodes with equal ones are kept as groups of rows."""

    __slots__ = ("_by_name", "groups", "names")

    def __init__(self, groups: list[tuple[Rejection, Rows]], names: list[str]) -> None:
        self.groups = groups
        self.names = names
        """Node name by row."""
        self._by_name: dict[str, Rejection] | None = None

    def by_name(self) -> dict[str, Rejection]:
        if self._by_name is None:
            self._by_name = {self.names[row]: rejection for rejection, rows in self.groups for row in rows}
        return self._by_name

    def __getitem__(self, name: str) -> Rejection:
        return self.by_name()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_name())

    def __len__(self) -> int:
        return sum(len(rows) for _, rows in self.groups)


_NO_REJECTIONS: Final = Rejections([], [])


@dataclass(slots=True)
class Attempt:
    """What came of one attempt: a node, or why there is none."""

    cycle: Cycle
    node: NodeInfo | None = None
    rejected: Rejection | None = None
    """A pre-filter rejected the pod on all nodes."""
    rejections: Mapping[str, Rejection] = field(default_factory=lambda: _NO_REJECTIONS)
    """By node name; only of a pod that fits nowhere."""
    unfinished: bool = False
    """Too many nodes must be asked for one attempt: what was answered is kept, try again at once."""
    search: Any = None
    """What was searched, the row and the scores; read what follows from it before the next change."""

    @property
    def ranked(self) -> tuple[NodeInfo, ...]:
        """The best of the nodes that fit, `node` first."""
        if self.search is None:
            return ()
        search, row, values = self.search
        return tuple(search.ranked(row, values))[:RANKED]

    def terms(self, nodes: Iterable[NodeInfo]) -> tuple[tuple[str, float, tuple[float, ...]], ...]:
        """Return each Score's name, its weight, and its values for some of the nodes that fit."""
        if self.search is None:
            return ()
        search, _, values = self.search
        return tuple(search.terms([node.row for node in nodes], values))

    @property
    def feasible(self) -> int:
        """Number of nodes that fit, or that the columns leave."""
        return 0 if self.search is None else int((self.search[2] > float("-inf")).sum())

    @property
    def considered(self) -> int:
        """Number of nodes that were considered."""
        return len(self.rejections) if self.search is None else self.search[0].considered()

    def groups(
        self, names: int, named: int | None = None
    ) -> Iterator[tuple[Rejection, int, tuple[str, ...]]]:
        """Yield each distinct rejection, that of most nodes first: how many nodes, and the first `names`.

        With `named`, only of so many. Of a pod that fits somewhere, a rejection without reasons stands for
        nodes that were not asked.
        """
        if self.search is not None:
            yield from self.search[0].samples(names)
            return
        rejections = self.rejections
        if isinstance(rejections, Rejections):
            by_size = sorted(rejections.groups, key=lambda item: -len(item[1]))
            for number, (rejection, rows) in enumerate(by_size):
                first = rows[: names if named is None or number < named else 0]
                yield rejection, len(rows), tuple(rejections.names[row] for row in first)

    @property
    def plugins(self) -> frozenset[str]:
        """Names of the plugins that rejected the pod somewhere."""
        found = {self.rejected.plugin} if self.rejected else set()
        if isinstance(self.rejections, Rejections):
            return frozenset(found.union(rejection.plugin for rejection, _ in self.rejections.groups))
        return frozenset(found.union(one.plugin for one in self.rejections.values()))


def message(result: Attempt, count: int) -> str:
    """Return why no node of `count` fits, in kube-scheduler's form."""
    prefix = f"0/{count} nodes are available: "
    if result.rejected:
        return f"{prefix}{'; '.join(map(str, result.rejected.reasons))}."
    reasons = [
        (reason, number) for rejection, number in _counted(result.rejections) for reason in rejection.reasons
    ]
    return f"{prefix}{_joined(reasons)}." if reasons else "no nodes available to schedule pods"


def _counted(rejections: Mapping[str, Rejection]) -> Iterator[tuple[Rejection, int]]:
    if isinstance(rejections, Rejections):
        # Equal rejections are mostly one object, and hashing one takes some µs.
        counts: dict[int, int] = {}
        for rejection, rows in rejections.groups:
            counts[id(rejection)] = counts.get(id(rejection), 0) + len(rows)
        distinct = {id(rejection): rejection for rejection, _ in rejections.groups}
        yield from ((distinct[number], count) for number, count in counts.items())
    else:
        yield from ((rejection, 1) for rejection in rejections.values())


def _joined(reasons: Sequence[tuple[NodeReason, int]]) -> str:
    """The texts with their counts; each is made once, and details are looked at only if they are printed."""
    counts: Counter[NodeReason | Reason] = Counter()
    if _are_many(reason for reason, _ in reasons):
        for reason, count in reasons:
            counts[reason.reason] += count
    else:
        for reason, count in reasons:
            counts[reason] += count
    texts: Counter[str] = Counter()
    for one, count in counts.items():
        texts[sentence(one) if isinstance(one, Reason) else str(one)] += count
    return ", ".join(sorted(f"{count} {text}" for text, count in texts.items()))


def _are_many(reasons: Iterable[NodeReason]) -> bool:
    distinct: set[NodeReason] = set()
    for reason in reasons:
        distinct.add(reason)
        if len(distinct) > MOST_REASONS:
            return True
    return False


def rejections(
    cycle: Cycle, filters: Iterable[tuple[int, FilterPlugin]], blame: Any, rows: Rows
) -> Iterator[tuple[Rejection, Rows]]:
    """Yield rejections, each once, and their rows; `blame` has the number of the filter that rejects a row.

    Equal rejections are mostly one object, and hashing one takes some µs: those are told apart by identity.
    """
    parts: dict[int, tuple[Rejection, list[Rows]]] = {}
    for number, plugin in filters:
        blamed = rows[blame[rows] == number]
        if len(blamed):
            for rejection, some in _of_plugin(plugin, cycle, blamed):
                parts.setdefault(id(rejection), (rejection, []))[1].append(some)
    for rejection, groups in parts.values():
        yield rejection, groups[0] if len(groups) == 1 else np.sort(np.concatenate(groups))


def _of_plugin(plugin: FilterPlugin, cycle: Cycle, rows: Rows) -> Iterator[tuple[Rejection, Rows]]:
    grouping = getattr(plugin, "rejections", None)
    if grouping is not None:
        yield from grouping(cycle, cycle.cluster.columns, rows)
        return
    groups: dict[Rejection, list[int]] = {}
    for row in rows:
        node = cycle.cluster.by_row[row]
        rejection = plugin.filter(cycle, node) if node else None
        if rejection is not None:
            groups.setdefault(rejection, []).append(int(row))
    for rejection, found in groups.items():
        yield rejection, np.array(found, dtype=np.intp)
