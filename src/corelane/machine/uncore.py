"""Uncore caches as a kubelet knows them: not the kernel's L3 domains, but what cAdvisor makes of them.

cAdvisor (`addCacheInfo` in its sysinfo.go) calls an L3 that is just a NUMA node the node's own; a core that
is left without an uncore cache goes under its socket's id in the kubelet (`getUncoreCacheID`).
"""

from collections import Counter
from collections.abc import Iterable

from corelane.machine.model import CPU

__all__ = ["kubelet_ids"]


def kubelet_ids(cpus: Iterable[CPU]) -> dict[int, int]:
    """CPU to the id of its uncore cache in the kubelet; `cpus` are all that are online.

    An L3 counts as the node's if it holds as many CPUs as the node would if all its cores were like this one.
    """
    cpus = tuple(cpus)
    sharing = Counter(cpu.l3 for cpu in cpus)
    threads = Counter((cpu.numa, cpu.core) for cpu in cpus)
    cores = Counter(numa for numa, _ in threads)

    def of(cpu: CPU) -> int:
        if cpu.uncore is not None:
            return cpu.uncore
        whole = sharing[cpu.l3] == cores[cpu.numa] * threads[cpu.numa, cpu.core]
        return cpu.socket if whole else cpu.l3

    return {cpu.id: of(cpu) for cpu in cpus}
