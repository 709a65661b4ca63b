"""The extension points of Kubernetes' scheduling framework, each with its plugins in a table.

A pre-filter looks at the pod alone. A filter answers the reasons why a pod cannot run on a node, none if it
can; a node's first filter with reasons speaks for it. A score is 0 to 100, and the weighted sum decides;
equal nodes go by fewest pods, then by name.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import TypeAlias

from corelane.node import Decision, NodeState
from corelane.scheduler.cluster import NodeInfo, PodInfo

__all__ = ["Cycle", "Filter", "Plugins", "PreFilter", "Score", "Wake"]


class Wake(Flag):
    """The kinds of change that can make a pod fit which did not."""

    NOTHING = 0
    NODE = auto()
    """A node came, or what it offers changed."""
    FREED = auto()
    """A pod ended, or a reservation was given up."""
    LEDGER = auto()
    """A node's agent published another machine or ledger."""


@dataclass(slots=True)
class Cycle:
    """One attempt to place one pod; filters leave here what later steps need."""

    info: PodInfo
    shape: str
    admitted: dict[str, tuple[NodeState, Decision]] = field(default_factory=dict)
    """Node name to its state with such a pod in, for the nodes that manage CPUs."""
    lacking: dict[str, NodeState] = field(default_factory=dict)
    """Node name to its state, for the nodes of which nothing but CPUs is missing."""

    @classmethod
    def of(cls, info: PodInfo) -> "Cycle":
        return cls(info, info.shape)


PreFilterFunction: TypeAlias = Callable[[PodInfo], str]
FilterFunction: TypeAlias = Callable[[Cycle, NodeInfo], Iterable[str]]
ScoreFunction: TypeAlias = Callable[[Cycle, NodeInfo], float]


@dataclass(frozen=True, slots=True)
class PreFilter:
    """`check` answers why no node at all can do, or ""."""

    name: str
    check: PreFilterFunction


@dataclass(frozen=True, slots=True)
class Filter:
    """`helped_by` are the changes that can make its verdict another one."""

    name: str
    reasons: FilterFunction
    helped_by: Wake


@dataclass(frozen=True, slots=True)
class Score:
    """`score` answers 0 to 100 for a node that passed all filters; `weight` says how much that counts."""

    name: str
    weight: float
    score: ScoreFunction


@dataclass(frozen=True, slots=True)
class Plugins:
    """What a scheduler is made of; cheap filters first."""

    prefilters: tuple[PreFilter, ...]
    filters: tuple[Filter, ...]
    scores: tuple[Score, ...]

    def first_reasons(self, cycle: Cycle, node: NodeInfo) -> tuple[Filter | None, tuple[str, ...]]:
        """The first filter that the node fails and its reasons; (None, ()) if it passes all."""
        for plugin in self.filters:
            if reasons := tuple(plugin.reasons(cycle, node)):
                return plugin, reasons
        return None, ()

    def scored(self, cycle: Cycle, node: NodeInfo) -> Mapping[str, float]:
        """Each score, weighted."""
        return {plugin.name: plugin.weight * plugin.score(cycle, node) for plugin in self.scores}
