"""What kube-scheduler asks an extender, answered by the same filters, scores and admission. Pure.

kube-scheduler keeps its queue and its own filters; of the profile, only the plugins that kube-scheduler does
not have are asked. Filter and Prioritize claim nothing: what kube-scheduler makes of them, if anything, is
seen by the informers. Bind (the core's event BindRequested) admits the pod once more, and claims its CPUs
before the binding is sent.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from corelane.kube.pod import Pod
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.nodes import NodeCache
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.cycle import finalists
from corelane.scheduler.framework import trials
from corelane.scheduler.framework.plugin import BEST, Cycle, Plugin, Rejection
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.framework.trials import first_rejection

HIGHEST: Final = 10
"""The highest priority that an extender gives (MaxExtenderPriority)."""
_OF_KUBE_SCHEDULER: Final = frozenset(
    {
        *("SchedulingGates", "PrioritySort", "DynamicResources", "NodeUnschedulable", "NodeName"),
        *("TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit", "NodeVolumeLimits"),
        *("VolumeRestrictions", "VolumeBinding", "VolumeZone", "PodTopologySpread", "InterPodAffinity"),
        *("ImageLocality", "DefaultPreemption", "DefaultBinder", "NodeResourcesBalancedAllocation"),
    }
)


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The nodes on which a pod fits, and why it does not fit on the others."""

    fitting: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    unresolvable: Mapping[str, str] = field(default_factory=dict)
    """As `failed`, where evicting pods cannot help."""


def beside_kube_scheduler(profile: Profile) -> Profile:
    """Return the profile without the plugins that kube-scheduler has itself."""
    points = {point: _own(plugins) for point, plugins in profile.points.items()}
    name = f"{profile.name}/extender"
    return replace(profile, name=name, plugins=_own(profile.plugins), points=points)


def _own(plugins: Iterable[Plugin]) -> tuple[Plugin, ...]:
    return tuple(plugin for plugin in plugins if plugin.name not in _OF_KUBE_SCHEDULER)


class Extender:
    """Answers about pods on the nodes of a cluster."""

    def __init__(self, profile: Profile, cluster: NodeCache) -> None:
        self.profile = beside_kube_scheduler(profile)
        self._cluster = cluster

    def verdicts(self, pod: Pod, names: Iterable[str]) -> Verdicts:
        """Judge each of the nodes."""
        asked = tuple(names)
        claimed = self._cluster.node_of(pod.metadata.uid)
        if claimed is not None:
            others = {
                name: f"the pod's binding to node {claimed} was sent, and its outcome is not known yet"
                for name in asked
                if name != claimed
            }
            return Verdicts(tuple(name for name in asked if name == claimed), others)
        cycle, skipped, rejected = self._begin(pod, asked)
        fitting: list[str] = []
        failed: dict[str, str] = {}
        unresolvable: dict[str, str] = {}
        for name in asked:
            node = self._cluster.get(name)
            if node is None or node.node is None:
                unresolvable[name] = f"node {name}: not known to corelane's scheduler yet"
                continue
            rejection = rejected or self._rejection(cycle, skipped, node)
            if rejection is None:
                fitting.append(name)
            else:
                (failed if rejection.resolvable else unresolvable)[name] = (
                    "; ".join(map(str, rejection.reasons)) or f"rejected by plugin {rejection.plugin}"
                )
        return Verdicts(tuple(fitting), failed, unresolvable)

    def priorities(self, pod: Pod, names: Iterable[str]) -> Iterator[tuple[str, int]]:
        """Yield 0 to `HIGHEST` for each node: the weighted mean of its scores; 0 without a fit."""
        asked = tuple(names)
        cycle, skipped, rejected = self._begin(pod, asked)
        for name in asked:
            node = self._cluster.get(name)
            fits = node is not None and node.node is not None and rejected is None
            if fits and node is not None and self._rejection(cycle, skipped, node) is None:
                weighted = [(weight, plugin.score(cycle, node)) for plugin, weight in self.profile.scores]
                total = sum(weight for weight, _ in weighted)
                mean = sum(weight * score for weight, score in weighted) / total if total else 0.0
                yield name, round(HIGHEST * min(max(mean / BEST, 0.0), 1.0))
            else:
                yield name, 0

    def still_fits(self, pod: Pod, node: str, victims: frozenset[str]) -> bool:
        """Return whether a pod fits on a node once these pods (UIDs) are gone."""
        info = self._cluster.get(node)
        if info is None or info.node is None:
            return False
        freed = trials.without(info, [victim for uid, victim in info.pods.items() if uid in victims])
        return finalists.rejection_on(self.profile, self._cluster, PodInfo.of(pod), freed) is None

    def _begin(self, pod: Pod, names: Iterable[str]) -> tuple[Cycle, frozenset[str], Rejection | None]:
        return finalists.begin(self.profile, self._cluster, PodInfo.of(pod), frozenset(names))

    def _rejection(self, cycle: Cycle, skipped: frozenset[str], node: NodeInfo) -> Rejection | None:
        filters = (plugin for plugin in self.profile.filters if plugin.name not in skipped)
        return first_rejection(filters, cycle, node)
