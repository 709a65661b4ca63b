"""The messages of the CRI (runtime.v1) that corelane speaks, built from a table of their field numbers.

Numbers are those of `k8s.io/cri-api/pkg/apis/runtime/v1/api.proto` (1.36), which never change. Fields that
are not listed come through unread. Importing this needs protobuf.
"""

from typing import Any, Final

from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)

SERVICE: Final = "runtime.v1.RuntimeService"
_PACKAGE: Final = "runtime.v1"

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "string": _Field.TYPE_STRING,
    "bool": _Field.TYPE_BOOL,
    "int32": _Field.TYPE_INT32,  # of enumerations too
    "uint32": _Field.TYPE_UINT32,
    "int64": _Field.TYPE_INT64,
}

# Field to its number and type; `strings` is a map of strings to strings, `[Name]` a list of messages.
_MESSAGES: Final[dict[str, dict[str, tuple[int, str]]]] = {
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
        "labels": (12, "strings"),
        "resources": (16, "ContainerResources"),
    },
    "ContainerStatusRequest": {"container_id": (1, "string"), "verbose": (2, "bool")},
    "ContainerStatusResponse": {"status": (1, "ContainerStatus"), "info": (2, "strings")},
}


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="corelane/runtime/cri.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message_type = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            _add(message_type, field, number, kind)
    return file


def _add(owner: Any, name: str, number: int, kind: str) -> None:
    field = owner.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL)
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
        return
    field.type = _Field.TYPE_MESSAGE
    if kind == "strings":
        kind = f"{owner.name}.{_add_entry(owner, name)}"
        field.label = _Field.LABEL_REPEATED
    elif kind.startswith("["):
        kind = kind.strip("[]")
        field.label = _Field.LABEL_REPEATED
    field.type_name = f".{_PACKAGE}.{kind}"


def _add_entry(owner: Any, field: str) -> str:
    """A map is a list of messages of key and value, by a name that protobuf prescribes."""
    entry = owner.nested_type.add(name=f"{field.title().replace('_', '')}Entry")
    entry.options.map_entry = True
    for number, name in ((1, "key"), (2, "value")):
        entry.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING)
    return str(entry.name)


_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(_file())


def message(name: str) -> Any:
    """The class of a message of the table."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
