"""Kinds of a few rows: namespaces, config maps, leases, priority classes, bindings, evictions, events."""

from corelane.apiserver.schema.derived_defaults import namespace_label
from corelane.apiserver.schema.notation import (
    BOOL,
    BYTES,
    INT32,
    MICRO_TIME,
    STRING,
    TIME,
    ListType,
    MapType,
    filling,
    opt,
    record,
    req,
    val,
)
from corelane.apiserver.schema.object_meta import DELETE_OPTIONS, kind

COORDINATION = "io.k8s.api.coordination.v1."

NAMESPACE_SPEC = record("NamespaceSpec", finalizers=val(ListType(STRING), 1))

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
    conditions=val(ListType(NAMESPACE_CONDITION), 2, merge="type"),
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
    data=val(MapType(STRING), 2),
    binaryData=val(MapType(BYTES), 3),
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

BINDING = kind("Binding", target=req(OBJECT_REFERENCE, 2))

EVICTION = kind("Eviction", "", "io.k8s.api.policy.v1.", deleteOptions=opt(DELETE_OPTIONS, 2))

NAMESPACE = filling(NAMESPACE, namespace_label)

# --- events, in the two groups that show one stored object

EVENTS_V1 = "io.k8s.api.events.v1."

EVENT_SOURCE = record("EventSource", component=val(STRING, 1), host=val(STRING, 2))

EVENT_SERIES = record("EventSeries", count=val(INT32, 1), lastObservedTime=req(MICRO_TIME, 2, optional=True))
NEW_EVENT_SERIES = record(
    "EventSeries", "", EVENTS_V1, count=req(INT32, 1), lastObservedTime=req(MICRO_TIME, 2)
)

EVENT = kind(
    "Event",
    involvedObject=req(OBJECT_REFERENCE, 2),
    reason=val(STRING, 3),
    message=val(STRING, 4),
    source=req(EVENT_SOURCE, 5, optional=True),
    firstTimestamp=req(TIME, 6, optional=True),
    lastTimestamp=req(TIME, 7, optional=True),
    count=val(INT32, 8),
    type=val(STRING, 9),
    eventTime=req(MICRO_TIME, 10, optional=True),
    series=opt(EVENT_SERIES, 11),
    action=val(STRING, 12),
    related=opt(OBJECT_REFERENCE, 13),
    reportingComponent=req(STRING, 14, go="ReportingController", optional=True),
    reportingInstance=req(STRING, 15, optional=True),
)

NEW_EVENT = kind(
    "Event",
    "",
    EVENTS_V1,
    eventTime=req(MICRO_TIME, 2),
    series=opt(NEW_EVENT_SERIES, 3),
    reportingController=val(STRING, 4),
    reportingInstance=val(STRING, 5),
    action=val(STRING, 6),
    reason=val(STRING, 7),
    regarding=req(OBJECT_REFERENCE, 8, optional=True),
    related=opt(OBJECT_REFERENCE, 9),
    note=val(STRING, 10),
    type=val(STRING, 11),
    deprecatedSource=req(EVENT_SOURCE, 12, optional=True),
    deprecatedFirstTimestamp=req(TIME, 13, optional=True),
    deprecatedLastTimestamp=req(TIME, 14, optional=True),
    deprecatedCount=val(INT32, 15),
)
