"""The part of a kubelet's KubeletConfiguration (v1beta1) that CPU management depends on, as /configz has it.

/configz answers with the effective configuration: defaults and command-line flags are merged in.
"""

import msgspec
from msgspec import field

from corelane.kube.decode import UNDECODABLE, plain_json, without_nulls
from corelane.kube.meta import ResourceList, Wire


class KubeletConfiguration(Wire, frozen=True):
    """Effective settings; defaults are the kubelet's (1.36)."""

    cpu_manager_policy: str = "none"
    cpu_manager_policy_options: dict[str, str] = field(default_factory=dict)
    topology_manager_policy: str = "none"
    topology_manager_scope: str = "container"
    memory_manager_policy: str = "None"
    reserved_system_cpus: str = field(name="reservedSystemCPUs", default="")
    kube_reserved: ResourceList = field(default_factory=dict)
    system_reserved: ResourceList = field(default_factory=dict)
    cpu_cfs_quota: bool = field(name="cpuCFSQuota", default=True)


class _Answer(Wire, frozen=True):
    configuration: KubeletConfiguration = field(name="kubeletconfig")


def decode(body: bytes) -> KubeletConfiguration:
    """Decode the answer of /configz. Raises ValueError."""
    try:
        return msgspec.json.decode(body, type=_Answer).configuration
    except UNDECODABLE:
        tree = without_nulls(plain_json(body))
        return msgspec.convert(tree, _Answer, strict=False).configuration
