"""One object in its surroundings: what the API server makes of it beside the LimitRanges and quotas there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from corelane.kernel import cfs
from corelane.limits.lint.located import Amount, ManifestResources, text
from corelane.limits.lint.manifests import ManifestContainer, ManifestObject
from corelane.limits.lint.policy import Policy
from corelane.workload import ContainerKind, QOSClass

__all__ = [
    "EffectiveAmounts",
    "PodContext",
    "QuotaCost",
    "RangeDefault",
    "containers",
    "cost_of",
    "effective",
    "exclusive_cpus",
    "held_by_class",
    "main_containers",
    "qos",
    "quota_cost",
    "quota_lifted",
    "range_default",
]

_NOTHING: Final = (0, 0)


@dataclass(frozen=True, slots=True)
class RangeDefault:
    """What a LimitRange gives a container that says nothing: nano-units, 0 for nothing."""

    request: int = 0
    limit: int = 0
    range: str = ""


@dataclass(frozen=True, slots=True)
class PodContext:
    """An object, the policy, and what else of its namespace is in the same input.

    `ranges` is by resource, `neighbours` by kind.
    """

    object: ManifestObject
    policy: Policy = field(default_factory=Policy)
    ranges: Mapping[str, RangeDefault] = field(default_factory=dict)
    neighbours: Mapping[str, Sequence[ManifestObject]] = field(default_factory=dict)

    def of_kind(self, kind: str) -> Sequence[ManifestObject]:
        """The neighbours of a kind."""
        return self.neighbours.get(kind, ())


@dataclass(frozen=True, slots=True)
class EffectiveAmounts:
    """Request and limit in nano-units as the pod is admitted, 0 for none; `origin` of the limit."""

    request: int
    limit: int
    origin: str = ""
    """The LimitRange that set the limit; empty where the manifest did."""
    written: Amount | None = None

    @property
    def request_milli(self) -> int:
        return -(-self.request // 10**6)

    @property
    def limit_milli(self) -> int:
        return -(-self.limit // 10**6)


def containers(scene: PodContext) -> tuple[ManifestContainer, ...]:
    """The containers of the object's pod, init containers first."""
    return scene.object.pod.containers if scene.object.pod else ()


def effective(scene: PodContext, own: ManifestResources, resource: str) -> EffectiveAmounts:
    """A container's request and limit after defaulting.

    A limit becomes the missing request first (`SetDefaults_Pod`); then the LimitRange fills what is left.
    """
    default = scene.ranges.get(resource, RangeDefault())
    written = own.limits.get(resource)
    limit = own.limit(resource) if written else default.limit
    request = own.request(resource) if written or resource in own.requests else default.request
    return EffectiveAmounts(request, limit, "" if written else default.range, written)


def qos(scene: PodContext) -> QOSClass:
    """The QoS class that the pod will have (upstream's `ComputePodQOS`)."""
    pod = scene.object.pod
    level = pod.resources if pod else None
    owners = [level] if level else [one.resources for one in containers(scene)]
    pairs = [[_pair(scene, one, resource) for resource in ("cpu", "memory")] for one in owners]
    if all(pair == _NOTHING for own in pairs for pair in own):
        return QOSClass.BEST_EFFORT
    equal = all(limit and request == limit for own in pairs for request, limit in own)
    return QOSClass.GUARANTEED if equal else QOSClass.BURSTABLE


def _pair(scene: PodContext, own: ManifestResources, resource: str) -> tuple[int, int]:
    found = effective(scene, own, resource)
    return found.request, found.limit


def exclusive_cpus(scene: PodContext, container: ManifestContainer) -> int:
    """Whole CPUs that a static CPU manager, or Koordinator, gives the container alone; 0 for none."""
    whole, rest = divmod(effective(scene, container.resources, "cpu").request, 10**9)
    if rest or not whole or not scene.policy.exclusive_cpus:
        return 0
    return whole if qos(scene) is QOSClass.GUARANTEED or _koordinator_class(scene) else 0


def held_by_class(scene: PodContext) -> tuple[str, ...]:
    """The containers whose exclusive CPUs hang on every container of the pod having limit = request."""
    if qos(scene) is not QOSClass.GUARANTEED or _koordinator_class(scene):
        return ()
    return tuple(one.name for one in containers(scene) if exclusive_cpus(scene, one))


def _koordinator_class(scene: PodContext) -> bool:
    pod = scene.object.pod
    label = pod.labels.get("koordinator.sh/qosClass") if pod else None
    return label is not None and text(label.value) in {"LSE", "LSR"}


def quota_lifted(scene: PodContext) -> bool:
    """Whether the runtime is told to set no quota (CRI-O's high-performance handler)."""
    pod = scene.object.pod
    found = pod.annotations.get("cpu-quota.crio.io") if pod else None
    return found is not None and text(found.value) == "disable"


def cost_of(scene: PodContext, limit_milli: int, threads: int) -> QuotaCost:
    """What a limit costs `threads` busy threads under the policy's period."""
    period = scene.policy.cfs_period_us
    return quota_cost(cfs.quota_us(limit_milli, period), period, threads)


def range_default(
    ranges: list[tuple[str, dict[str, tuple[int, int, int, int]]]], resource: str
) -> RangeDefault:
    """What several LimitRanges (name, resource → default, defaultRequest, max, min) give together.

    A maximum is the default limit where there is none, a default limit the default request, and else the
    minimum (`SetDefaults_LimitRangeItem`). The first that says something wins.
    """
    for name, amounts in ranges:
        limit, request, most, least = amounts.get(resource, (0, 0, 0, 0))
        limit = limit or most
        request = request or limit or least
        if limit or request:
            return RangeDefault(request, limit, name)
    return RangeDefault()


def main_containers(scene: PodContext) -> Iterator[ManifestContainer]:
    """Those that run as long as the pod: containers and sidecars."""
    return (one for one in containers(scene) if one.kind is not ContainerKind.INIT)


# What a quota costs, in closed form. n threads use a quota Q up after Q/n and then wait for the next period P
# (kernel documentation, sched-bwc). Slices and ticks, which shift this by a few ms, are the model's.


@dataclass(frozen=True, slots=True)
class QuotaCost:
    """What `threads` that run at once lose, at worst, to a quota.

    `stall_ms` is how long they stand still in every period, `lost_ms_per_s` the CPU time of which they are
    kept in every second, summed over them.
    """

    threads: int
    quota_ms: float
    period_ms: float
    stall_ms: float
    lost_ms_per_s: float

    @property
    def lost_share(self) -> float:
        """Of the CPU time that they want, the part that they do not get."""
        return self.lost_ms_per_s / (1000 * self.threads)

    @property
    def after_ms(self) -> float:
        """When in the period they have used the quota up."""
        return min(self.quota_ms / self.threads, self.period_ms)


def quota_cost(quota_us: int, period_us: int, threads: int) -> QuotaCost:
    """The cost of a quota to `threads` (at least 1) busy threads."""
    quota, period = quota_us / 1000, period_us / 1000
    lost = max(0.0, threads * period - quota)
    return QuotaCost(threads, quota, period, lost / threads, lost / period * 1000)
