"""Which plugins have something to say of a pod, sorted by how they are asked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cycle.vectors import ShapeVectors, is_exact
from corelane.scheduler.framework.plugin import (
    Cycle,
    FilterPlugin,
    IdlePlugin,
    PreFilterPlugin,
    Scope,
    ScorePlugin,
    Skip,
)
from corelane.scheduler.framework.profile import Profile

Numbered: TypeAlias = tuple[int, FilterPlugin]
"""A filter with its number in the profile, from 1."""
Weighted: TypeAlias = tuple[ScorePlugin, float]


@dataclass(frozen=True, slots=True)
class Plan:
    """The filters of a profile without those that skip, and its scores."""

    filters: tuple[Numbered, ...]
    rows: tuple[Numbered, ...]
    """Filters of scope ROW."""
    cluster: tuple[Numbered, ...]
    """Filters of scope CLUSTER."""
    inexact: tuple[Numbered, ...]
    """Filters that are asked about finalists."""
    plugins: tuple[FilterPlugin, ...]
    row_scores: tuple[Weighted, ...]
    cluster_scores: tuple[Weighted, ...]
    profile: str
    pre_filters: tuple[str, ...]
    """Names of the pre-filters that did not skip."""


def pre_filters_of(profile: Profile, cycle: Cycle) -> tuple[tuple[PreFilterPlugin, ...], frozenset[str]]:
    """Return the pre-filters to be asked about the pod, and the names of those that are known to skip it."""
    if not cycle.pod.plain:
        return profile.pre_filters, _NO_NAMES
    found: tuple[tuple[PreFilterPlugin, ...], frozenset[str]] | None = profile.of_plain.get(cycle.pod.shape)
    if found is None:
        every = profile.pre_filters
        idle = {one.name for one in every if isinstance(one, IdlePlugin) and one.idle(cycle.pod)}
        asked = tuple(one for one in every if one.name not in idle)
        found = profile.of_plain[cycle.pod.shape] = asked, frozenset(idle)
    return found


def plan_of(profile: Profile, skipped: frozenset[str]) -> Plan:
    """Return the plan for pods that skip these filters."""
    plans: dict[frozenset[str], Plan] = profile.plans
    plan = plans.get(skipped)
    if plan is None:
        plan = plans[skipped] = _plan(profile, skipped)
    return plan


def _plan(profile: Profile, skipped: frozenset[str]) -> Plan:
    filters = tuple(one for one in enumerate(profile.filters, 1) if one[1].name not in skipped)
    return Plan(
        filters,
        tuple(one for one in filters if one[1].scope is Scope.ROW),
        tuple(one for one in filters if one[1].scope is Scope.CLUSTER),
        tuple(one for one in filters if not is_exact(one[1])),
        tuple(plugin for _, plugin in filters),
        tuple(one for one in profile.scores if one[0].scope is Scope.ROW),
        tuple(one for one in profile.scores if one[0].scope is Scope.CLUSTER),
        profile.name,
        tuple(one.name for one in profile.pre_filters if one.name not in skipped),
    )


def vectors_of(profile: Profile, plan: Plan, skipped: frozenset[str], cycle: Cycle) -> ShapeVectors:
    """Return the vectors of the pod's shape, not updated yet."""
    cache = cycle.cluster.columns.vectors
    key = profile.name, cycle.shape.id, skipped, cycle.cluster.columns.any_koordinator
    vectors: ShapeVectors | None = cache.pop(key, None)
    if vectors is None:
        weighted = [one for one in plan.row_scores if has_a_say(one, cycle, ())]
        vectors = ShapeVectors(cycle.cluster.columns, plan.rows, weighted, cycle.shape)
        if len(cache) >= MOST_SHAPES:
            del cache[next(iter(cache))]
    cache[key] = vectors
    return vectors


def has_a_say(weighted: Weighted, cycle: Cycle, nodes: Sequence[NodeInfo]) -> bool:
    """Return whether a Score has something to say of the pod."""
    pre_score = getattr(weighted[0], "pre_score", None)
    return pre_score is None or not isinstance(pre_score(cycle, nodes), Skip)


_NO_NAMES: Final[frozenset[str]] = frozenset()
MOST_SHAPES = 256
"""Shapes whose vectors are kept: about 20 bytes for each node."""
