"""What became of an ask, as every policy answers it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from corelane.cpuset import CPUSet
from corelane.placement.reasons import Reason
from corelane.workload import BindPolicy

__all__ = ["Decision"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of an ask. `reason` is CamelCase as in a pod's status, "" when admitted."""

    admitted: bool
    reason: str = ""
    message: str = ""
    assignments: Mapping[str, CPUSet] = field(default_factory=lambda: MappingProxyType({}))
    """Container name to the CPUs that it is bound to; containers not named run in a pool."""
    zone: CPUSet | None = None
    """NUMA nodes to whose part of the shared pool the others are held; None is all of the pool."""
    shared: CPUSet = field(default_factory=CPUSet)
    """The shared pool after the decision."""
    repicked: bool = False
    """CPUs were proposed, but not all of them could be had, and others were picked."""
    bind: BindPolicy | None = None
    """How the CPUs that all containers of a pod have in common were to lie on cores; None for other pods."""
    bind_required: bool = False
    reasons: tuple[Reason, ...] = ()
