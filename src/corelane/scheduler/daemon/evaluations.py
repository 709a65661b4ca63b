"""How often plugins were asked about pods: `scheduler_plugin_evaluation_total`.

Upstream counts each node at Filter and Score. Here plugins are asked about all nodes at once, so an attempt
counts once. Attempts are counted by what they asked, which is the same for most; names are made by a scrape.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily

from corelane.scheduler.cycle import Attempt
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.plans import Plan

_HELP: Final = (
    "Number of attempts to schedule pods by each plugin and the extension point (available only in "
    "PreFilter, Filter, PreScore, and Score)."
)
Labels = tuple[str, str, str]
"""Plugin, extension point, profile."""


class PluginEvaluations:
    """Counts attempts."""

    def __init__(self) -> None:
        self._plans: dict[int, Plan] = {}
        self._attempts: Counter[tuple[int, tuple[str, ...]]] = Counter()
        """By the plan's identity, and the scores that had something to say; none where no node fits."""
        self._known: set[Labels] = set()
        self._rejected: Counter[tuple[str, str]] = Counter()
        """By the plugin whose PreFilter rejected the pod, and the profile."""

    def know(self, profiles: Iterable[Profile]) -> None:
        """Show the plugins of these profiles from now on, before they are asked."""
        for profile in profiles:
            plugins = (
                ("PreFilter", profile.pre_filters),
                ("Filter", profile.filters),
                ("PreScore", (one for one, _ in profile.scores if hasattr(one, "pre_score"))),
                ("Score", (one for one, _ in profile.scores)),
            )
            for point, there in plugins:
                self._known.update((plugin.name, point, profile.name) for plugin in there)

    def attempted(self, attempt: Attempt, profile: str) -> None:
        """Count an attempt that has ended."""
        cycle = attempt.cycle
        if attempt.rejected is not None:
            self._rejected[attempt.rejected.plugin, profile] += 1
        elif cycle.plan is not None:
            plan: Any = cycle.plan
            self._plans[id(plan)] = plan
            self._attempts[id(plan), cycle.scored if attempt.node is not None else ()] += 1

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(
            "scheduler_plugin_evaluation", _HELP, labels=("plugin", "extension_point", "profile")
        )
        for labels, number in sorted(self._named().items()):
            family.add_metric(labels, number)
        yield family

    def _named(self) -> Counter[Labels]:
        found: Counter[Labels] = Counter(dict.fromkeys(self._known, 0))
        for (plugin, profile), number in self._rejected.items():
            found[plugin, "PreFilter", profile] += number
        for (key, scored), number in self._attempts.items():
            for labels in _asked(self._plans[key], scored):
                found[labels] += number
        return found


def _asked(plan: Plan, scored: tuple[str, ...]) -> Iterator[Labels]:
    for name in plan.pre_filters:
        yield name, "PreFilter", plan.profile
    for _, plugin in plan.filters:
        yield plugin.name, "Filter", plan.profile
    for score, _ in (*plan.row_scores, *plan.cluster_scores):
        if score.name in scored:
            if hasattr(score, "pre_score"):
                yield score.name, "PreScore", plan.profile
            yield score.name, "Score", plan.profile
