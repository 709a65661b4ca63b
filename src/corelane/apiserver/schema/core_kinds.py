"""Kinds of a few rows: namespaces, config maps, leases, priority classes, bindings, evictions."""

from corelane.apiserver.schema.derived_defaults import namespace_label
from corelane.apiserver.schema.notation import (
    BOOL,
    BYTES,
    INT32,
    MICRO_TIME,
    STRING,
    TIME,
    List,
    Map,
    filling,
    opt,
    record,
    req,
    val,
)
from corelane.apiserver.schema.object_meta import DELETE_OPTIONS, kind

COORDINATION = "io.k8s.api.coordination.v1."

NAMESPACE_SPEC = record(
    "NamespaceSpec",
    finalizers=val(List(STRING)),
)

NAMESPACE_CONDITION = record(
    "NamespaceCondition",
    type=req(STRING),
    status=req(STRING),
    lastTransitionTime=req(TIME, optional=True),
    reason=val(STRING),
    message=val(STRING),
)

NAMESPACE_STATUS = record(
    "NamespaceStatus",
    phase=val(STRING, default="Active"),
    conditions=val(List(NAMESPACE_CONDITION), merge="type"),
)

NAMESPACE = kind(
    "Namespace",
    "@namespace-finalizers",
    spec=req(NAMESPACE_SPEC, optional=True),
    status=req(NAMESPACE_STATUS, optional=True),
)

CONFIG_MAP = kind(
    "ConfigMap",
    "@config-data",
    immutable=opt(BOOL),
    data=val(Map(STRING)),
    binaryData=val(Map(BYTES)),
)

LEASE_SPEC = record(
    "LeaseSpec",
    "leaseDurationSeconds leaseTransitions @lease-strategy",
    COORDINATION,
    holderIdentity=opt(STRING),
    leaseDurationSeconds=opt(INT32, check="above-0"),
    acquireTime=opt(MICRO_TIME),
    renewTime=opt(MICRO_TIME),
    leaseTransitions=opt(INT32, check="not-negative"),
    strategy=opt(STRING),
    preferredHolder=opt(STRING),
)

LEASE = kind(
    "Lease",
    "spec",
    COORDINATION,
    spec=req(LEASE_SPEC, optional=True),
)

PRIORITY_CLASS = kind(
    "PriorityClass",
    "@priority-value preemptionPolicy",
    "io.k8s.api.scheduling.v1.",
    value=req(INT32, optional=True),
    globalDefault=val(BOOL),
    description=val(STRING),
    preemptionPolicy=opt(
        STRING, default="PreemptLowerPriority", check="not-empty", enum="PreemptLowerPriority Never"
    ),
)

OBJECT_REFERENCE = record(
    "ObjectReference",
    kind=val(STRING),
    namespace=val(STRING),
    name=val(STRING),
    uid=val(STRING, go="UID"),
    apiVersion=val(STRING, go="APIVersion"),
    resourceVersion=val(STRING),
    fieldPath=val(STRING),
)

BINDING = kind(
    "Binding",
    "@binding-target",
    target=req(OBJECT_REFERENCE),
)

EVICTION = kind(
    "Eviction",
    "",
    "io.k8s.api.policy.v1.",
    deleteOptions=opt(DELETE_OPTIONS),
)

NAMESPACE = filling(NAMESPACE, namespace_label)
