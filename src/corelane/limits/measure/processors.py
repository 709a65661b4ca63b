"""How busy CPUs are, from /proc/stat: what a container's neighbours do on the CPUs that it may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from corelane.cpuset import CPUSet
from corelane.limits.measure.verdict import Surroundings

__all__ = ["Processor", "around", "parse"]


@dataclass(frozen=True, slots=True)
class Processor:
    """What one CPU has done since boot, in clock ticks: running anything, and taken by the hypervisor."""

    busy: int
    steal: int


def parse(text: str) -> dict[int, Processor]:
    """CPU id to its counters, from the lines `cpu0 …` (proc_stat(5)); empty where there are none."""
    found: dict[int, Processor] = {}
    for line in text.splitlines():
        name, *numbers = line.split() or [""]
        if name.startswith("cpu") and name[3:].isdecimal() and _are_counters(numbers):
            user, nice, system, _, *rest = (int(number) for number in numbers)
            irq, softirq, steal = (*rest[1:4], 0, 0, 0)[:3]
            found[int(name[3:])] = Processor(user + nice + system + irq + softirq, steal)
    return found


def _are_counters(numbers: list[str]) -> bool:
    return len(numbers) >= 4 and all(number.isdecimal() for number in numbers)


def around(
    before: Mapping[int, Processor],
    after: Mapping[int, Processor],
    cpus: CPUSet | None,
    seconds: float,
    ticks_per_second: int,
) -> Surroundings | None:
    """What happened on `cpus` (None: on all) between two readings; None where they tell nothing."""
    shared = [cpu for cpu in after if cpu in before and (cpus is None or cpu in cpus)]
    if not shared or seconds <= 0:
        return None
    unit = 1000 / ticks_per_second / seconds
    busy = sum(after[cpu].busy - before[cpu].busy for cpu in shared)
    steal = sum(after[cpu].steal - before[cpu].steal for cpu in shared)
    return Surroundings(len(shared), max(0, busy) * unit, max(0, steal) * unit)
