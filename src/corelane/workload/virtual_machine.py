"""CPUs that KubeVirt's virt-launcher pod requests for a virtual machine."""

from collections.abc import Callable
from math import prod


def launcher_cpus(field: Callable[..., str], *, to_even: bool = False) -> tuple[int, int]:
    """Return a domain's vCPUs, and the CPUs beside them for I/O threads and an isolated emulator thread.

    `field` returns the text at a path below `domain`, "" where there is none. The topology counts by what is
    set of it: 0 vCPUs where nothing is. `to_even` is the annotation EmulatorThreadCompleteToEvenParity.
    Source: virt-controller, `WithCPUPinning` and `GetNumberOfVCPUs`.
    """
    counts = [_count(field("cpu", part)) for part in ("cores", "sockets", "threads")]
    vcpus = prod(count for count in counts if count) if any(counts) else 0
    beside = _count(field("ioThreads", "supplementalPoolThreadCount"))
    if field("cpu", "dedicatedCpuPlacement") == field("cpu", "isolateEmulatorThread") == "true":
        beside += 2 if to_even and (vcpus + beside) % 2 == 0 else 1
    return vcpus, beside


def _count(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) <= 6 else 0
