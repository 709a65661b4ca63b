"""Instructions about pods whose containers corelane starts itself; those about CPUs are allocation's."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from corelane.agent.allocation.instructions import Instruction, PodWrite
from corelane.cpuset import CPUSet
from corelane.embedded.pods.records import PodPlan


@dataclass(frozen=True, slots=True)
class Start(Instruction):
    """Start a run of a container on `cpus`; answered by Started or StartFailed."""

    plan: PodPlan
    container: str
    attempt: int
    cpus: CPUSet
    mems: CPUSet | None = None


@dataclass(frozen=True, slots=True)
class Stop(Instruction):
    """Stop a container within `grace` seconds; answered by Exited or StopFailed."""

    id: str
    grace: float


@dataclass(frozen=True, slots=True)
class Remove(Instruction):
    """Remove one ended run; its log stays."""

    id: str


@dataclass(frozen=True, slots=True)
class RemovePod(Instruction):
    """Remove all runs of a pod, and their logs."""

    uid: str


@dataclass(frozen=True, slots=True)
class PublishStatus(PodWrite):
    """Write a pod's status to the API server; a later one replaces an earlier one not yet written."""

    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeletePod(PodWrite):
    """Delete the pod from the API server, with grace 0, after its last status is written."""


CHANGES: Final = (Start, Stop, Remove, RemovePod)
"""Instructions that change containers."""
