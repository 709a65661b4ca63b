"""The CFS quota that a kubelet sets on a pod's cgroup, above those of the pod's containers.

It is the sum of the containers' limits (kubelet: ResourceConfigForPod). A container whose own quota is lifted
is throttled by it all the same, so it is lifted as well: the other containers keep their own quotas.
"""

import errno
import re
from collections.abc import Iterator
from typing import Final

from corelane.kernel import cfs
from corelane.kernel.cgroupfs import CgroupError
from corelane.kernel.container_cgroup import Bandwidth, effective, read_bandwidth, write_bandwidth
from corelane.kernel.container_paths import CgroupView, kubelet_ancestors

_POD: Final = re.compile(r"(?:.+-)?pod[0-9a-f][0-9a-f_-]*(?:\.slice)?")
_GONE: Final = (errno.ENOENT, errno.ENODEV)
_MONITORS: Final = ("crio-conmon-", "libpod-conmon-")


def throttling(view: CgroupView, group: str, sandbox: str = "") -> Bandwidth | None:
    """Return the quota of the pod of a container that has none, where it may be lifted; else None.

    It may not where it is a limit of the pod's own (pod-level resources): one below the sum of what the
    containers may use, each its quota or, without one, its CPUs. The group of the `sandbox` (an id) is not
    counted. Raises CgroupError.
    """
    pod = _pod(group)
    if pod is None:
        return None
    limit = _existing(view, pod)
    if limit is None or limit.quota_us is None:
        return None
    bounds = [_bound(view, name, limit.period_us) for name in _containers(view, pod, sandbox)]
    # The kubelet rounds each container's quota up to what the kernel takes at least.
    rounded = limit.quota_us + len(bounds) * cfs.MIN_QUOTA_US
    return limit if sum(bounds) <= rounded else None


def lift(view: CgroupView, group: str, sandbox: str = "") -> None:
    """Lift the quota of a container's pod, unless it is a limit of the pod's own. Raises CgroupError."""
    limit, pod = throttling(view, group, sandbox), _pod(group)
    if limit is not None and pod is not None:
        write_bandwidth(view, pod, Bandwidth(None, limit.period_us))


def _pod(group: str) -> str | None:
    above = kubelet_ancestors(group)
    return above[-1] if above and _POD.fullmatch(above[-1].rpartition("/")[2]) else None


def _containers(view: CgroupView, pod: str, sandbox: str) -> Iterator[str]:
    for name in view.files.groups(view.cpu / pod):
        if not name.startswith(_MONITORS) and not (sandbox and sandbox in name):
            yield f"{pod}/{name}"


def _bound(view: CgroupView, group: str, period_us: int) -> float:
    """Microseconds of CPU time that a container may use in a period of the pod's; 0 once it has ended."""
    own = _existing(view, group)
    if own is None:
        return 0
    if own.quota_us is None:
        return len(effective(view, group)) * period_us
    return own.quota_us * period_us / own.period_us


def _existing(view: CgroupView, group: str) -> Bandwidth | None:
    """Bandwidth of a group; None once it is gone. Raises CgroupError."""
    try:
        return read_bandwidth(view, group)
    except CgroupError as error:
        if error.errno not in _GONE:
            raise
        return None
