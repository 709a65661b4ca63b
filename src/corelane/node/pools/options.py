"""What an operator decides about a node under policy `pools`; labels and annotations are resolved before."""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, Literal, TypeAlias, get_args

from corelane.cpuset import CPUSet, named
from corelane.machine.model import Machine
from corelane.node.errors import NodeConfigError
from corelane.workload import BindPolicy, NUMAPolicy, NUMAStrategy, PodQOS

__all__ = ["AllocatorName", "IsolatedCPUs", "PoolOptions"]

AllocatorName: TypeAlias = Literal["optimal", "koordinator"]
IsolatedCPUs: TypeAlias = Literal["ignore", "exclude", "exclusive-only"]

_ONCE: Final = Fraction(1)
_BINDS: Final = (None, BindPolicy.FULL_PCPUS, BindPolicy.SPREAD_BY_PCPUS)


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """Settings of one node that count under policy `pools` alone."""

    allocator: AllocatorName = "optimal"
    guaranteed_default: PodQOS = PodQOS.LSR
    """What a Guaranteed pod without Koordinator's label is: LSR, as users of the kubelet expect, or LS."""
    strict_requests: bool = False
    """LSE and LSR must have limits equal to their requests (the proposal's rule), not only a whole number of
    CPUs in all their containers together (upstream's)."""
    be_minimum: int = 1
    """CPUs that best effort keeps: what would leave it fewer is refused."""
    isolated_cpus: IsolatedCPUs = "ignore"
    """Of the kernel's isolated CPUs: as any other; used by nobody; or only by those who have CPUs alone."""
    bind: BindPolicy | None = BindPolicy.FULL_PCPUS
    """For pods that do not say; None leaves those that do not on the shared pool, as upstream."""
    node_bind: BindPolicy | None = None
    """What the node requires of everybody: FullPCPUs (FullPCPUsOnly) or SpreadByPCPUs."""
    strategy: NUMAStrategy | None = None
    """Which NUMA nodes come first. None: LeastAllocated for `koordinator`, no matter for `optimal`."""
    as_proposed: bool = False
    """`koordinator` distributes evenly, and falls back from NUMANodeLevel, as the proposal says and its code
    does not."""
    numa: NUMAPolicy = NUMAPolicy.NONE
    withheld: CPUSet = field(default_factory=CPUSet)
    """CPUs that no pod uses (annotation `node.koordinator.sh/reservation`)."""
    withheld_offered: bool = False
    """Whether they count all the same in what pods may request (its applyPolicy ReservedCPUsOnly)."""
    withheld_memory: int = 0
    """Bytes of memory that pods may not request (its `resources`)."""
    system: CPUSet = field(default_factory=CPUSet)
    """Where SYSTEM pods run (annotation `node.koordinator.sh/system-qos-resource`); never bound by others."""
    system_exclusive: bool = True
    """Whether only SYSTEM pods run there."""
    amplification: Fraction = _ONCE
    """How many times a CPU counts in what the node offers; one that a pod is bound to is real and takes as
    much of it (annotation `node.koordinator.sh/resource-amplification-ratio`)."""
    profile: tuple[int, ...] = (2, 4, 8, 16)
    """The sizes of requests to come, for which `optimal` leaves room."""

    def closed(self, machine: Machine) -> int:
        """The CPUs that neither the shared pool nor best effort uses, as a mask."""
        mask = self.withheld.mask | (self.system.mask if self.system_exclusive else 0)
        return mask | (machine.isolated.mask if self.isolated_cpus != "ignore" else 0)

    def unbindable(self, machine: Machine) -> int:
        """The CPUs, beside reserved ones, that are never a container's own, as a mask."""
        mask = self.withheld.mask | self.system.mask
        return mask | (machine.isolated.mask if self.isolated_cpus == "exclude" else 0)

    def check(self, machine: Machine) -> None:
        """Raises NodeConfigError where a setting makes no sense, or leaves this machine without a pool."""
        _word("allocator", self.allocator, get_args(AllocatorName))
        _word("guaranteed_default", self.guaranteed_default, (PodQOS.LSR, PodQOS.LS))
        _word("isolated_cpus", self.isolated_cpus, get_args(IsolatedCPUs))
        _word("bind", self.bind, _BINDS)
        _word("node_bind", self.node_bind, _BINDS)
        usable = machine.usable.mask
        if not 0 <= self.be_minimum <= usable.bit_count():
            raise NodeConfigError(
                f"{self.be_minimum} is not between 0 and {usable.bit_count()}, the CPUs of this machine",
                "be_minimum",
            )
        if self.amplification < 1:
            raise NodeConfigError(f"{self.amplification} is less than 1: leave it out", "amplification")
        if not self.profile or min(self.profile) < 1:
            sizes = ", ".join(map(str, self.profile)) or "nothing"
            raise NodeConfigError(f"{sizes}: name sizes of requests, each at least 1 CPU", "profile")
        if not usable & ~self.closed(machine):
            raise NodeConfigError(
                f"withheld {str(self.withheld)!r}, system {str(self.system)!r} and isolated_cpus "
                f"{self.isolated_cpus} leave none of {named(usable)} to the shared pool: "
                "leave it one"
            )


def _word(name: str, value: str | None, words: tuple[str | None, ...]) -> None:
    if value not in words:
        raise NodeConfigError(
            f"{value!r} is unknown: use {' or '.join(str(word) for word in words if word)}", name
        )
