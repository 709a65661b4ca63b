"""Kinds of a few rows: namespaces, config maps, leases, priority classes, bindings, evictions, events."""

from corelane.embedded.apiserver.schema.derived_defaults import namespace_label
from corelane.embedded.apiserver.schema.notation import Columns, record
from corelane.embedded.apiserver.schema.object_meta import kind

COORDINATION = "io.k8s.api.coordination.v1."

record("NamespaceSpec", "finalizers:[]string=1")

record("NamespaceCondition", "type!=1 status!=2 lastTransitionTime+:time=4 reason=5 message=6")

record(
    "NamespaceStatus",
    "phase=1 conditions:[]NamespaceCondition=2",
    phase=Columns(default="Active"),
    conditions=Columns(merge="type"),
)

NAMESPACE = kind(
    "Namespace",
    "spec+:NamespaceSpec=2 status+:NamespaceStatus=3",
    order="@namespace-finalizers",
    defaults=(namespace_label,),
)

CONFIG_MAP = kind("ConfigMap", "immutable?:bool=4 data:{}string=2 binaryData:{}bytes=3", order="@config-data")

SECRET = kind(
    "Secret",
    "immutable?:bool=5 data:{}bytes=2 stringData:{}string=4 type=3",
    order="@secret-data",
    type=Columns(default="Opaque"),
)

record(
    "LeaseSpec",
    "holderIdentity?=1 leaseDurationSeconds?:int32=2|above-0 acquireTime?:microtime=3 "
    "renewTime?:microtime=4 leaseTransitions?:int32=5|not-negative strategy?=6 preferredHolder?=7",
    order="leaseDurationSeconds leaseTransitions",
    package=COORDINATION,
)

LEASE = kind("Lease", "spec+:LeaseSpec=2", order="spec", package=COORDINATION)

PRIORITY_CLASS = kind(
    "PriorityClass",
    "value+:int32=2 globalDefault:bool=3 description=4 preemptionPolicy?=5|not-empty",
    order="@priority-value preemptionPolicy",
    package="io.k8s.api.scheduling.v1.",
    preemptionPolicy=Columns(default="PreemptLowerPriority", enum="PreemptLowerPriority Never"),
)

record(
    "ObjectReference",
    "kind=1 namespace=2 name=3 uid=4 apiVersion=5 resourceVersion=6 fieldPath=7",
    atomic=True,
)

BINDING = kind("Binding", "target!:ObjectReference=2")

EVICTION = kind("Eviction", "deleteOptions?:DeleteOptions=2", package="io.k8s.api.policy.v1.")


# --- events, in the two groups that show one stored object

EVENTS_V1 = "io.k8s.api.events.v1."

record("EventSource", "component=1 host=2")

record("EventSeries", "count:int32=1 lastObservedTime+:microtime=2")
record("EventSeries", "count!:int32=1 lastObservedTime!:microtime=2", package=EVENTS_V1)

EVENT = kind(
    "Event",
    "involvedObject!:ObjectReference=2 reason=3 message=4 source+:EventSource=5 firstTimestamp+:time=6 "
    "lastTimestamp+:time=7 count:int32=8 type=9 eventTime+:microtime=10 series?:EventSeries=11 action=12 "
    "related?:ObjectReference=13 reportingComponent+=14 reportingInstance+=15",
)

NEW_EVENT = kind(
    "Event",
    "eventTime!:microtime=2 series?:EventSeries=3 reportingController=4 reportingInstance=5 action=6 "
    "reason=7 regarding+:ObjectReference=8 related?:ObjectReference=9 note=10 type=11 "
    "deprecatedSource+:EventSource=12 deprecatedFirstTimestamp+:time=13 deprecatedLastTimestamp+:time=14 "
    "deprecatedCount:int32=15",
    package=EVENTS_V1,
)
