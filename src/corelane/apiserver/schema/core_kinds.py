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

NAMESPACE_SPEC = record("NamespaceSpec", finalizers=val(List(STRING), 1))

NAMESPACE_CONDITION = record(
    "NamespaceCondition",
    type=req(STRING, 1),
    status=req(STRING, 2),
    lastTransitionTime=req(TIME, 4, optional=True),
    reason=val(STRING, 5),
    message=val(STRING, 6),
)

NAMESPACE_STATUS = record(
    "NamespaceStatus",
    phase=val(STRING, 1, default="Active"),
    conditions=val(List(NAMESPACE_CONDITION), 2, merge="type"),
)

NAMESPACE = kind(
    "Namespace",
    "@namespace-finalizers",
    spec=req(NAMESPACE_SPEC, 2, optional=True),
    status=req(NAMESPACE_STATUS, 3, optional=True),
)

CONFIG_MAP = kind(
    "ConfigMap",
    "@config-data",
    immutable=opt(BOOL, 4),
    data=val(Map(STRING), 2),
    binaryData=val(Map(BYTES), 3),
)

LEASE_SPEC = record(
    "LeaseSpec",
    "leaseDurationSeconds leaseTransitions @lease-strategy",
    COORDINATION,
    holderIdentity=opt(STRING, 1),
    leaseDurationSeconds=opt(INT32, 2, check="above-0"),
    acquireTime=opt(MICRO_TIME, 3),
    renewTime=opt(MICRO_TIME, 4),
    leaseTransitions=opt(INT32, 5, check="not-negative"),
    strategy=opt(STRING, 6),
    preferredHolder=opt(STRING, 7),
)

LEASE = kind("Lease", "spec", COORDINATION, spec=req(LEASE_SPEC, 2, optional=True))

PRIORITY_CLASS = kind(
    "PriorityClass",
    "@priority-value preemptionPolicy",
    "io.k8s.api.scheduling.v1.",
    value=req(INT32, 2, optional=True),
    globalDefault=val(BOOL, 3),
    description=val(STRING, 4),
    preemptionPolicy=opt(
        STRING, 5, default="PreemptLowerPriority", check="not-empty", enum="PreemptLowerPriority Never"
    ),
)

OBJECT_REFERENCE = record(
    "ObjectReference",
    kind=val(STRING, 1),
    namespace=val(STRING, 2),
    name=val(STRING, 3),
    uid=val(STRING, 4, go="UID"),
    apiVersion=val(STRING, 5, go="APIVersion"),
    resourceVersion=val(STRING, 6),
    fieldPath=val(STRING, 7),
)

BINDING = kind("Binding", "@binding-target", target=req(OBJECT_REFERENCE, 2))

EVICTION = kind("Eviction", "", "io.k8s.api.policy.v1.", deleteOptions=opt(DELETE_OPTIONS, 2))

NAMESPACE = filling(NAMESPACE, namespace_label)
