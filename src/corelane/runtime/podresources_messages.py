"""The messages of the kubelet's podresources API (v1) that corelane reads, as a table of field numbers.

Numbers are those of `k8s.io/kubelet/pkg/apis/podresources/v1/api.proto` (1.37), which never change.
"""

from typing import Any, Final

from corelane.runtime.protobuf_table import MessageTable, Table

SERVICE: Final = "v1.PodResourcesLister"
_MESSAGES: Final[Table] = {
    "ContainerResources": {"name": (1, "string"), "cpu_ids": (3, "[int64]")},
    "PodResources": {
        "name": (1, "string"),
        "namespace": (2, "string"),
        "containers": (3, "[ContainerResources]"),
        "cpu_ids": (4, "[int64]"),
    },
    "ListPodResourcesRequest": {},
    "ListPodResourcesResponse": {"pod_resources": (1, "[PodResources]")},
    "AllocatableResourcesRequest": {},
    "AllocatableResourcesResponse": {"cpu_ids": (2, "[int64]")},
}
_TABLE: Final = MessageTable("v1", _MESSAGES)


def message(name: str) -> Any:
    """Return the class of a message of the table."""
    return _TABLE.message(name)


def parse(name: str, data: bytes) -> Any:
    """Return a message of the table. Raises ValueError for bytes that are not one."""
    return _TABLE.parse(name, data)
