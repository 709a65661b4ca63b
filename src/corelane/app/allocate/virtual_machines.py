"""KubeVirt's virtual machines as virt-launcher pods, without the memory that KubeVirt adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from corelane.workload.request import launcher_cpus

GROUP: Final = "kubevirt.io"
_PARITY: Final = "alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity"
_OVERHEAD: Final = "256Mi"
"""About what KubeVirt adds to a machine's memory; beside huge pages it is all of the pod's other memory."""
_CPU_ALLOCATION_RATIO: Final = 10
"""KubeVirt's default: the vCPUs for which it requests one CPU."""


def launcher_spec(template: Mapping[str, Any], annotations: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of the pod for a VirtualMachineInstance's spec. Raises ValueError."""
    domain = template.get("domain")
    if not isinstance(domain, dict):
        raise ValueError("domain: is missing or not an object")

    def field(*path: str) -> str:
        value: Any = domain
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return str(value).lower() if isinstance(value, bool) else str(value or "")

    vcpus, beside = launcher_cpus(field, to_even=_PARITY in annotations)
    requests, limits = (_amounts(domain, part) for part in ("requests", "limits"))
    if memory := requests.get("memory") or limits.get("memory") or field("memory", "guest"):
        requests["memory"] = memory
    if page := field("memory", "hugepages", "pageSize"):
        limits[f"hugepages-{page}"] = field("memory", "guest") or requests.get("memory") or page
        requests["memory"] = _OVERHEAD
        limits.pop("memory", None)
    if field("cpu", "dedicatedCpuPlacement") == "true":
        cpus = vcpus + beside if vcpus else limits.get("cpu") or requests.get("cpu")
        if not cpus or (beside and not vcpus):
            raise ValueError("domain.cpu: dedicatedCpuPlacement without cores, sockets or threads")
        requests["cpu"] = limits["cpu"] = cpus
        limits |= {"memory": requests["memory"]} if "memory" in requests else {}
    elif "cpu" not in requests | limits:
        requests["cpu"] = f"{1000 * ((vcpus or 1) + beside) // _CPU_ALLOCATION_RATIO}m"
    return {"containers": [{"name": "compute", "resources": {"requests": requests, "limits": limits}}]}


def _amounts(domain: Mapping[str, Any], part: str) -> dict[str, Any]:
    resources = domain.get("resources") or {}
    amounts = (resources.get(part) or {}) if isinstance(resources, dict) else {}
    return dict(amounts) if isinstance(amounts, dict) else {}
