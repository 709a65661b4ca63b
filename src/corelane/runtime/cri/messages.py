"""The messages of the CRI (runtime.v1) that corelane speaks, built from a table of their field numbers.

Numbers are those of `k8s.io/cri-api/pkg/apis/runtime/v1/api.proto` (1.36), which never change. Importing
this needs protobuf.
"""

from typing import Any, Final

from corelane.runtime.protobuf_table import MessageTable, Table

SERVICE: Final = "runtime.v1.RuntimeService"
_MESSAGES: Final[Table] = {
    "VersionRequest": {"version": (1, "string")},
    "VersionResponse": {
        "version": (1, "string"),
        "runtime_name": (2, "string"),
        "runtime_version": (3, "string"),
        "runtime_api_version": (4, "string"),
    },
    "PodSandboxMetadata": {
        "name": (1, "string"),
        "uid": (2, "string"),
        "namespace": (3, "string"),
        "attempt": (4, "uint32"),
    },
    "PodSandbox": {
        "id": (1, "string"),
        "metadata": (2, "PodSandboxMetadata"),
        "state": (3, "int32"),
        "created_at": (4, "int64"),
        "labels": (5, "strings"),
        "annotations": (6, "strings"),
    },
    "ListPodSandboxRequest": {},
    "ListPodSandboxResponse": {"items": (1, "[PodSandbox]")},
    "ContainerMetadata": {"name": (1, "string"), "attempt": (2, "uint32")},
    "Container": {
        "id": (1, "string"),
        "pod_sandbox_id": (2, "string"),
        "metadata": (3, "ContainerMetadata"),
        "state": (6, "int32"),
        "created_at": (7, "int64"),
        "labels": (8, "strings"),
        "annotations": (9, "strings"),
    },
    "ListContainersRequest": {},
    "ListContainersResponse": {"containers": (1, "[Container]")},
    "LinuxContainerResources": {
        "cpu_period": (1, "int64"),
        "cpu_quota": (2, "int64"),
        "cpu_shares": (3, "int64"),
        "cpuset_cpus": (6, "string"),
        "cpuset_mems": (7, "string"),
    },
    "ContainerResources": {"linux": (1, "LinuxContainerResources")},
    "ContainerStatus": {
        "id": (1, "string"),
        "metadata": (2, "ContainerMetadata"),
        "state": (3, "int32"),
        "started_at": (5, "int64"),
        "finished_at": (6, "int64"),
        "exit_code": (7, "int32"),
        "reason": (10, "string"),
        "message": (11, "string"),
        "labels": (12, "strings"),
        "resources": (16, "ContainerResources"),
    },
    "ContainerStatusRequest": {"container_id": (1, "string"), "verbose": (2, "bool")},
    "ContainerStatusResponse": {"status": (1, "ContainerStatus"), "info": (2, "strings")},
    "UpdateContainerResourcesRequest": {
        "container_id": (1, "string"),
        "linux": (2, "LinuxContainerResources"),
    },
    "UpdateContainerResourcesResponse": {},
    "GetEventsRequest": {},
    "ContainerEventResponse": {"container_id": (1, "string"), "container_event_type": (2, "int32")},
    # containerd's own events, on the same socket (api/services/events/v1, api/events/task.proto).
    "SubscribeRequest": {"filters": (1, "[string]")},
    "Any": {"type_url": (1, "string"), "value": (2, "bytes")},
    "Envelope": {"namespace": (2, "string"), "topic": (3, "string"), "event": (4, "Any")},
    # TaskStart and TaskExit: of the first, field 2 is a number, which a text leaves unread.
    "TaskEvent": {"container_id": (1, "string"), "id": (2, "string")},
}
_TABLE: Final = MessageTable("runtime.v1", _MESSAGES)


def message(name: str) -> Any:
    """Return the class of a message of the table."""
    return _TABLE.message(name)


def parse(name: str, data: bytes) -> Any:
    """Return a message of the table. Raises ValueError for bytes that are not one."""
    return _TABLE.parse(name, data)
