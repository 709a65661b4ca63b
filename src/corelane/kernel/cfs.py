"""CPU requests and limits as shares, weight and quota, by the kubelet's and the runtimes' formulas.

Pure arithmetic. Sources: kubernetes pkg/kubelet/cm/helpers_linux.go and cgroup_manager_linux.go for the
linear weight, opencontainers/cgroups (runc ≥ 1.3.2, crun ≥ 1.23) for the one that containers get.
"""

import math

MIN_SHARES, MAX_SHARES = 2, 262144
MAX_WEIGHT = 10000
PERIOD_US = 100_000
MIN_QUOTA_US = 1_000


def shares(milli: int) -> int:
    """cpu.shares (cgroup v1) for a request in milliCPU."""
    return min(max(milli * 1024 // 1000, MIN_SHARES), MAX_SHARES)


def quota_us(milli: int, period_us: int = PERIOD_US) -> int:
    """Microseconds of CPU time per period for a limit in milliCPU, at least 1 ms; 0 gives 0, no limit."""
    return max(milli * period_us // 1000, MIN_QUOTA_US) if milli else 0


def pod_weight(value: int) -> int:
    """cpu.weight (cgroup v2) for `value` shares, linear: what the kubelet writes for pods and QoS classes."""
    if value >= MAX_SHARES:
        return MAX_WEIGHT
    return 1 + (max(value, MIN_SHARES) - 2) * 9999 // 262142


def container_weight(value: int) -> int:
    """cpu.weight for `value` shares as runtimes write it for containers: 1024 shares are weight 100."""
    if value <= MIN_SHARES:
        return 1
    if value >= MAX_SHARES:
        return MAX_WEIGHT
    log = math.log2(value)
    return math.ceil(10 ** ((log * log + 125 * log) / 612 - 7 / 34))
