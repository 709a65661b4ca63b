"""JSON schemas of the kinds, made from the tables in `apiserver.schema`; the same for OpenAPI v2 and v3.

Each type and field has one line that `kubectl explain` shows; the texts are corelane's own.
"""

from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any

from corelane.embedded.apiserver.schema.defaults_and_formats import PATTERNS
from corelane.embedded.apiserver.schema.notation import (
    DELETE_OPTIONS,
    LIST_META,
    STATUS,
    FieldRow,
    ListType,
    MapType,
    ObjectType,
    ScalarType,
    Shape,
)
from corelane.embedded.apiserver.served_kinds import BINDINGS, EVICTIONS, ServedKind

TYPES: dict[str, str] = {
    "Pod": "One or more containers that run together on one node.",
    "PodSpec": "Desired state of a pod.",
    "PodStatus": "Observed state of a pod, as its node reports it.",
    "Container": "One container: a command, its resources and its probes.",
    "ContainerStatus": "Observed state of one container.",
    "ResourceRequirements": "Resource requests and limits of a container.",
    "Node": "A machine that runs pods.",
    "NodeSpec": "Desired state of a node.",
    "NodeStatus": "Observed state of a node: resources, addresses, conditions.",
    "Namespace": "A scope for names; deleting it deletes the objects in it.",
    "ConfigMap": "Named settings as text or bytes.",
    "Secret": "Named confidential settings as bytes, such as passwords and keys.",
    "Event": "Something that happened to an object, once or several times.",
    "Lease": "A lock with an expiry: node heartbeats and leader election.",
    "PriorityClass": "A named priority for pods.",
    "PodDisruptionBudget": "Limits how many of a group of pods may be evicted at a time.",
    "PodDisruptionBudgetSpec": "The pods, and how many of them must stay available.",
    "PodDisruptionBudgetStatus": "Counts of the pods, and how many evictions are allowed now.",
    "LabelSelector": "Selects objects by their labels; an empty one selects all.",
    "Condition": "One aspect of an object's state.",
    "Binding": "Binds a pod to a node; its annotations and labels are merged into the pod.",
    "Eviction": "Requests the deletion of a pod.",
    "NodeResourceTopology": "Capacity, allocatable and available resources of a node's NUMA zones.",
    "Zone": "One NUMA zone of a node.",
    "ResourceInfo": "One resource of a zone.",
    "ObjectMeta": "Metadata of every object: name, labels, versions, times.",
    "ListMeta": "Metadata of every list: its version and the start of the next page.",
    "Status": "The outcome of a request.",
    "DeleteOptions": "Options of a deletion.",
    "Toleration": "A taint that the pod tolerates.",
    "Taint": "Repels pods that do not tolerate it.",
}

FIELDS: dict[str, str] = {
    "apiVersion": "Group and version of this form of the object.",
    "kind": "The kind of the object.",
    "metadata": "Name, labels, versions, times.",
    "spec": "Desired state.",
    "status": "Observed state, written by the system.",
    "ObjectMeta.name": "Unique in its namespace among objects of its kind.",
    "ObjectMeta.generateName": "Prefix of a name that the server completes.",
    "ObjectMeta.namespace": "The scope of the name.",
    "ObjectMeta.labels": "Keys and values by which objects are selected.",
    "ObjectMeta.annotations": "Keys and values that selectors ignore.",
    "ObjectMeta.uid": "Unique in time and space; given by the server.",
    "ObjectMeta.resourceVersion": "Version of the object. An update that names an older one is refused.",
    "ObjectMeta.generation": "Number of changes of the desired state.",
    "ObjectMeta.creationTimestamp": "When the object was created.",
    "ObjectMeta.deletionTimestamp": "When the object is due to be removed; set when its deletion begins.",
    "ObjectMeta.finalizers": "Controllers that must finish before a deleted object is removed.",
    "ObjectMeta.ownerReferences": "Objects that this one belongs to.",
    "PodSpec.containers": "Containers that run at the same time.",
    "PodSpec.initContainers": "Containers that run first, one by one; with restartPolicy Always they go on.",
    "PodSpec.nodeName": "The node the pod is bound to.",
    "PodSpec.nodeSelector": "Labels that the node must have.",
    "PodSpec.affinity": "Rules on nodes and on other pods that the scheduler follows.",
    "PodSpec.tolerations": "Taints that the pod tolerates.",
    "PodSpec.schedulerName": "Name of the scheduler that selects the node.",
    "PodSpec.priorityClassName": "The class that gives the pod its priority.",
    "PodSpec.restartPolicy": "When ended containers are restarted: Always, OnFailure or Never.",
    "PodSpec.terminationGracePeriodSeconds": "Seconds between SIGTERM and SIGKILL.",
    "PodStatus.phase": "Pending, Running, Succeeded, Failed or Unknown.",
    "PodStatus.qosClass": "Guaranteed, Burstable or BestEffort, from the containers' resources.",
    "Container.name": "Unique in the pod.",
    "Container.image": "Image to run. Ignored where containers are local processes.",
    "Container.command": "The program and its first arguments.",
    "Container.args": "More arguments.",
    "Container.env": "Environment variables.",
    "Container.resources": "Requests and limits for CPU, memory and other resources.",
    "ResourceRequirements.requests": "Resources reserved for the container.",
    "ResourceRequirements.limits": "Upper bounds of use.",
    "NodeSpec.taints": "Taints that repel pods which do not tolerate them.",
    "NodeSpec.unschedulable": "Whether the scheduler skips the node.",
    "NodeStatus.capacity": "All resources of the node.",
    "NodeStatus.allocatable": "Resources for pods: capacity less what is reserved.",
    "NodeResourceTopology.zones": "The node's NUMA zones.",
    "NodeResourceTopology.attributes": "Named attributes of the node.",
    "NodeResourceTopology.topologyPolicies": "The topology manager's policy and scope.",
    "ResourceInfo.capacity": "Total amount in the zone.",
    "ResourceInfo.allocatable": "Amount that pods can use.",
    "ResourceInfo.available": "Amount not in use.",
    "Binding.target": "The node.",
    "Secret.data": "Settings as bytes (base64).",
    "Secret.stringData": "Settings as text; for writing only, stored in data.",
    "Secret.type": "What the data is for; it decides which entries are required.",
    "Secret.immutable": "Whether the settings are fixed.",
    "ConfigMap.data": "Settings as text.",
    "ConfigMap.binaryData": "Settings as bytes (base64).",
    "ConfigMap.immutable": "Whether the settings are fixed.",
    "LeaseSpec.holderIdentity": "Identity of the holder.",
    "LeaseSpec.leaseDurationSeconds": "Seconds that the lease is valid without renewal.",
    "LeaseSpec.renewTime": "When it was last renewed.",
    "PodDisruptionBudgetSpec.minAvailable": "Number or percentage of pods that must stay available.",
    "PodDisruptionBudgetSpec.maxUnavailable": "Number or percentage of pods that may be unavailable.",
    "PodDisruptionBudgetSpec.selector": "The pods, by their labels; without it none, with an empty one all.",
    "PodDisruptionBudgetSpec.unhealthyPodEvictionPolicy": "IfHealthyBudget or AlwaysAllow, for unready pods.",
    "PodDisruptionBudgetStatus.disruptionsAllowed": "Number of pods that may be evicted now.",
    "PodDisruptionBudgetStatus.currentHealthy": "Number of ready pods.",
    "PodDisruptionBudgetStatus.desiredHealthy": "Number of ready pods below which nothing is evicted.",
    "PodDisruptionBudgetStatus.expectedPods": "Number of pods that the budget counts.",
    "PodDisruptionBudgetStatus.disruptedPods": "Pods whose eviction was allowed, and when.",
    "PodDisruptionBudgetStatus.observedGeneration": "The generation that the counts are of.",
    "PriorityClass.value": "The priority; higher goes first.",
    "PriorityClass.globalDefault": "Whether pods without a class get this one.",
    "PriorityClass.preemptionPolicy": "Whether such pods may preempt others.",
}


Schema = dict[str, Any]
GVK = dict[str, str]

V2_REFS = "#/definitions/"
V3_REFS = "#/components/schemas/"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_SCALARS: Mapping[str, Schema] = {
    "string": {"type": "string"},
    "text-or-null": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "bytes": {"type": "string", "format": "byte"},
    "object": {"type": "object"},
}
_QUANTITY = ("io.k8s.apimachinery.pkg.api.resource.Quantity", {"type": "string"})
_NAMED: Mapping[str, tuple[str, Schema]] = {
    "time": (f"{_META}Time", {"type": "string", "format": "date-time"}),
    "microtime": (f"{_META}MicroTime", {"type": "string", "format": "date-time"}),
    "raw": (f"{_META}FieldsV1", {"type": "object"}),
    "quantity": _QUANTITY,
    "amount": _QUANTITY,
    "int-or-string": (
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        {"type": "string", "format": "int-or-string"},
    ),
}
PATCH = f"{_META}Patch"
_SUBRESOURCE_BODIES = {"binding": BINDINGS, "eviction": EVICTIONS}


def model(kind: ServedKind, version: str) -> str:
    """The name of the kind's schema."""
    return kind.schema[version].model


def list_model(kind: ServedKind, version: str) -> str:
    """The name of the schema of a list of the kind."""
    return f"{model(kind, version)}List"


def body_kind(kind: ServedKind, subresource: str) -> ServedKind:
    """The kind that a subresource takes: some have one of their own."""
    return _SUBRESOURCE_BODIES.get(subresource, kind)


def gvk(kind: ServedKind, version: str, suffix: str = "") -> GVK:
    return {"group": kind.group, "kind": kind.kind + suffix, "version": version}


def definitions(kinds: list[tuple[ServedKind, str]], refs: str) -> dict[str, Schema]:
    """Every schema that the (kind, version) pairs need, by name; `refs` is the references' prefix."""
    schemas: dict[str, Schema] = {PATCH: {"type": "object", "description": "A patch, in one of its forms."}}
    for record in (STATUS, DELETE_OPTIONS, LIST_META):
        _add(record, schemas, refs)
    for kind, version in kinds:
        for member in (kind, *(body_kind(kind, name) for name in kind.subresources)):
            shown = version if member is kind else member.version
            _add(member.schema[shown], schemas, refs)
            schemas[model(member, shown)]["x-kubernetes-group-version-kind"] = [gvk(member, shown)]
        schemas[list_model(kind, version)] = {
            "description": f"A list of {kind.plural}.",
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": _described({"type": "string"}, FIELDS.get("apiVersion", "")),
                "items": {"type": "array", "items": {"$ref": refs + model(kind, version)}},
                "kind": _described({"type": "string"}, FIELDS.get("kind", "")),
                "metadata": {"$ref": refs + LIST_META.model},
            },
            "x-kubernetes-group-version-kind": [gvk(kind, version, "ListType")],
        }
    return dict(sorted(schemas.items()))


def _add(record: ObjectType, schemas: dict[str, Schema], refs: str) -> None:
    """Put the schema of `record`, and of all that it consists of, into `schemas`."""
    if record.model in schemas:
        return
    schemas[record.model] = schema = _described({"type": "object"}, TYPES.get(record.name, ""))
    if record.atomic:
        schema["x-kubernetes-map-type"] = "atomic"
    required = [row.name for row in record if row.required]
    if required:
        schema["required"] = sorted(required)
    schema["properties"] = {
        row.name: _property(record, row, refs) for row in sorted(record, key=attrgetter("name"))
    }
    for inner in (leaf for row in record for leaf in _leaves(row.shape)):
        if isinstance(inner, ObjectType):
            _add(inner, schemas, refs)
        elif inner.name in _NAMED:
            name, named = _NAMED[inner.name]
            schemas[name] = named


def _leaves(shape: Shape) -> Iterator[ObjectType | ScalarType]:
    if isinstance(shape, ListType):
        yield from _leaves(shape.item)
    elif isinstance(shape, MapType):
        yield from _leaves(shape.value)
    else:
        yield shape


def _property(record: ObjectType, row: FieldRow, refs: str) -> Schema:
    schema = _shape(row.shape, refs)
    text = FIELDS.get(f"{record.name}.{row.name}") or FIELDS.get(row.name, "")
    # what a row says beside its type: defaults, choices, and how lists and maps merge
    members: Schema = {
        "default": None if callable(row.default) else row.default,
        "enum": list(row.enum) or None,
        "x-kubernetes-list-type": row.list or None,
        "x-kubernetes-list-map-keys": list(row.keys) if row.list == "map" else None,
        "x-kubernetes-map-type": None if row.atomic is None else "atomic" if row.atomic else "granular",
        "x-kubernetes-patch-merge-key": row.merge or None,
        "x-kubernetes-patch-strategy": ",".join(row.strategy) or None,
        **_limits(row),
        "description": text or None,
    }
    extra = {key: value for key, value in members.items() if value is not None}
    if extra and "$ref" in schema and refs == V3_REFS:
        # beside a reference v3 reads nothing; of v2's clients some know no allOf
        schema = {"allOf": [schema]}
    return schema | extra


def _described(schema: Schema, text: str) -> Schema:
    return schema | ({"description": text} if text else {})


def _shape(shape: Shape, refs: str) -> Schema:
    if isinstance(shape, ListType):
        return {"type": "array", "items": _shape(shape.item, refs)}
    if isinstance(shape, MapType):
        return {"type": "object", "additionalProperties": _shape(shape.value, refs)}
    if isinstance(shape, ObjectType):
        return {"$ref": refs + shape.model}
    if shape.name in _NAMED:
        return {"$ref": refs + _NAMED[shape.name][0]}
    return dict(_SCALARS[shape.name])


def _limits(row: FieldRow) -> Schema:
    """Return a row's range, length and pattern; where zero counts as unset it is valid, too."""
    low, high = row.range
    if not isinstance(row.shape, ScalarType):
        return {}
    optional = row.presence == "val" and "required" not in row.check
    pattern = next((PATTERNS[name] for name in row.check if name in PATTERNS), None)
    return {
        "minimum": min(low, 0) if optional and low is not None else low,
        "maximum": high,
        "maxLength": row.longest,
        "pattern": row.pattern or (pattern and f"^({pattern})?$" if optional else pattern and f"^{pattern}$"),
    }
