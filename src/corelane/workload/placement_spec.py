"""How a pod requests its CPUs: Koordinator's policies, gocrane's looser ones, our exclusivity and affinity.

Honoured by node policy `pools`. The values are the strings of Koordinator's and gocrane's annotations.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from corelane.workload.selectors import Selector


class PodQOS(StrEnum):
    """Koordinator's class of a pod (label `koordinator.sh/qosClass`)."""

    LSE = "LSE"
    """Latency sensitive, exclusive: CPUs shared with no other pod."""
    LSR = "LSR"
    """Latency sensitive, reserved: exclusive CPUs, shared with BE."""
    LS = "LS"
    """Latency sensitive: on the shared pool."""
    BE = "BE"
    """Best effort: on everything but LSE's CPUs."""
    SYSTEM = "SYSTEM"


class Band(StrEnum):
    """Koordinator's priority class of a pod: its label, or where the pod's priority lies."""

    PROD = "koord-prod"
    MID = "koord-mid"
    BATCH = "koord-batch"
    FREE = "koord-free"


class BindPolicy(StrEnum):
    """How logical CPUs are laid over cores; the annotation's `Default` is resolved before it comes here."""

    FULL_PCPUS = "FullPCPUs"
    SPREAD_BY_PCPUS = "SpreadByPCPUs"
    CONSTRAINED_BURST = "ConstrainedBurst"
    """No CPUs of its own: an LS pod held to the shared pool of one NUMA node."""


class ExclusivePolicy(StrEnum):
    """Koordinator's preferred exclusivity: such pods avoid units used by pods with the same policy."""

    NONE = ""
    PCPU_LEVEL = "PCPULevel"
    NUMA_NODE_LEVEL = "NUMANodeLevel"


class NUMAStrategy(StrEnum):
    """From which NUMA nodes CPUs come."""

    MOST_ALLOCATED = "MostAllocated"
    LEAST_ALLOCATED = "LeastAllocated"
    DISTRIBUTE_EVENLY = "DistributeEvenly"


class NUMAPolicy(StrEnum):
    """How strictly a pod's resources must lie together."""

    NONE = ""
    BEST_EFFORT = "BestEffort"
    RESTRICTED = "Restricted"
    SINGLE_NUMA_NODE = "SingleNUMANode"


class CPUPolicy(StrEnum):
    """gocrane's `topology.crane.io/cpu-policy`."""

    NONE = "none"
    NUMA = "numa"
    """Float in the shared pool of the chosen NUMA nodes."""
    EXCLUSIVE = "exclusive"
    IMMOVABLE = "immovable"
    """Bound to CPUs that others in the pool may use too."""


class TopologyLevel(StrEnum):
    """A unit of the machine, for exclusivity and pod CPU affinity."""

    CORE = "core"
    L3 = "l3"
    NUMA = "numa"


@dataclass(frozen=True, slots=True)
class Exclusivity:
    """No other pod's bound CPUs in the same unit (`corelane.io/exclusive`)."""

    level: TopologyLevel
    required: bool = False


@dataclass(frozen=True, slots=True)
class PodCPUAffinity:
    """Pod CPU affinity: `avoid` or prefer sharing a unit with the pods selected (`corelane.io/cpu-affinity`).

    Only pods of the same namespace are meant.
    """

    avoid: bool
    level: TopologyLevel
    others: Selector
    required: bool = False


@dataclass(frozen=True, slots=True)
class SchedulerDefaults:
    """What a scheduler's profile decides for pods that do not say, where the node does not say either."""

    bind: BindPolicy | None = None
    """FullPCPUs or SpreadByPCPUs, preferred."""
    exclusive_policy: ExclusivePolicy | None = None
    strategy: NUMAStrategy | None = None
    numa: NUMAPolicy | None = None


NO_DEFAULTS: Final = SchedulerDefaults()


@dataclass(frozen=True, slots=True)
class PlacementSpec:
    """Everything a pod says about its CPUs beyond their number; None means that it does not say."""

    qos: PodQOS | None = None
    band: Band | None = None
    bind: BindPolicy | None = None
    bind_required: bool = False
    exclusive_policy: ExclusivePolicy | None = None
    exclusive: Exclusivity | None = None
    affinities: tuple[PodCPUAffinity, ...] = ()
    strategy: NUMAStrategy | None = None
    numa: NUMAPolicy | None = None
    numa_exclusive: bool | None = None
    """Koordinator's singleNUMANodeExclusive: True for Required, False for Preferred."""
    cpu_policy: CPUPolicy | None = None
    topology_aware: bool | None = None
    defaults: SchedulerDefaults = NO_DEFAULTS
    """Of the scheduler's profile; no annotation carries them."""
    core_kind: str | None = None
    """Only CPUs of cores of this kind (see `machine.model.core_kinds`)."""
