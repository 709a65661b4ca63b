"""The part of a kubelet's KubeletConfiguration (v1beta1) that CPU management depends on, as /configz has it.

/configz answers with the effective configuration: defaults and command-line flags are merged in.
"""

import re
from typing import Final

import msgspec
from msgspec import field

from corelane.kube.decode import without_nulls
from corelane.kube.meta import ResourceList, Wire

_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")


class MemoryReservation(Wire, frozen=True):
    """Memory of a NUMA node that pods never get."""

    numa_node: int = 0
    limits: ResourceList = field(default_factory=dict)


class KubeletConfiguration(Wire, frozen=True):
    """Effective settings; defaults are the kubelet's (1.36). Durations are Go's, such as "10s"."""

    cpu_manager_policy: str = "none"
    cpu_manager_policy_options: dict[str, str] = field(default_factory=dict)
    cpu_manager_reconcile_period: str = "10s"
    topology_manager_policy: str = "none"
    topology_manager_scope: str = "container"
    topology_manager_policy_options: dict[str, str] = field(default_factory=dict)
    memory_manager_policy: str = "None"
    reserved_memory: tuple[MemoryReservation, ...] = ()
    reserved_system_cpus: str = field(name="reservedSystemCPUs", default="")
    kube_reserved: ResourceList = field(default_factory=dict)
    system_reserved: ResourceList = field(default_factory=dict)
    feature_gates: dict[str, bool] = field(default_factory=dict)
    cgroup_driver: str = "cgroupfs"
    cgroup_root: str = ""
    cgroups_per_qos: bool = field(name="cgroupsPerQOS", default=True)
    cpu_cfs_quota: bool = field(name="cpuCFSQuota", default=True)
    cpu_cfs_quota_period: str = field(name="cpuCFSQuotaPeriod", default="100ms")

    @property
    def reconcile_seconds(self) -> float:
        """Seconds between two writes of the cpusets by the kubelet's static policy; zero means 10."""
        return duration(self.cpu_manager_reconcile_period) or 10.0

    @property
    def quota_period_us(self) -> int:
        """The period of CPU quotas in microseconds; 100 ms where the kubelet does not name a valid one."""
        return round(duration(self.cpu_cfs_quota_period) * 1e6) or 100_000


class _Answer(Wire, frozen=True):
    configuration: KubeletConfiguration = field(name="kubeletconfig")


def decode(body: bytes) -> KubeletConfiguration:
    """Decode the answer of /configz. Raises msgspec.MsgspecError."""
    try:
        return msgspec.json.decode(body, type=_Answer).configuration
    except msgspec.ValidationError:
        tree = without_nulls(msgspec.json.decode(body))
        return msgspec.convert(tree, _Answer, strict=False).configuration


def duration(text: str) -> float:
    """Return a Go duration such as "1m30s" in seconds; 0.0 for an invalid one."""
    parts = _PART.findall(text)
    if not parts or "".join(map("".join, parts)) != text:
        return 0.0
    return float(sum(float(number) * _UNITS[unit] for number, unit in parts))
