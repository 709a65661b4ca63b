"""What Koordinator's scheduler knows of a node beside its CPUs: what its zones offer, and amplification."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Final

from corelane.workload import Amounts

_ONCE: Final = Fraction(1)
_NO_ZONES: Final[Mapping[int, Amounts]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class KoordinatorOptions:
    """Settings of a node that is judged as by Koordinator's scheduler. CPU in milliCPU, others in units."""

    zones: Mapping[int, Amounts] = field(default_factory=lambda: _NO_ZONES)
    """NUMA node to what its zone offers: allocatable, less reserved CPUs, amplified. Empty where no zone is
    published."""
    amplification: Fraction = _ONCE
    """Of CPUs in `zones`."""
    allocatable: int = 0
    """MilliCPU allocatable on the node, where CPUs are amplified."""
