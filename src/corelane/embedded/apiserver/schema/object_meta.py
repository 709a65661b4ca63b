"""The types that every kind shares: metadata, label selectors, Status, delete options."""

from typing import Any

from corelane.embedded.apiserver.schema.notation import CORE, META, Columns, ObjectType, record

record(
    "OwnerReference",
    "apiVersion!=5 kind!=1 name!=3 uid!=4 controller?:bool=6 blockOwnerDeletion?:bool=7",
    package=META,
    atomic=True,
)

record(
    "ManagedFieldsEntry",
    "manager=1 operation=2 apiVersion=3 time?:time=4 fieldsType=6 fieldsV1?:raw=7 subresource=8",
    package=META,
)

OBJECT_META = record(
    "ObjectMeta",
    "name=1 generateName=2 namespace=3 selfLink=4 uid=5 resourceVersion=6 generation:int64=7|0.. "
    "creationTimestamp?:time=8 deletionTimestamp?:time=9 deletionGracePeriodSeconds?:int64=10 "
    "labels:{}string=11|labels annotations:{}string=12 ownerReferences:[]OwnerReference=13 "
    "finalizers:[]string=14 managedFields?:[]ManagedFieldsEntry=17",
    package=META,
    ownerReferences=Columns(merge="uid"),
    finalizers=Columns(strategy="merge", list="set"),
)

LIST_META = record(
    "ListMeta", "selfLink=1 resourceVersion=2 remainingItemCount?:int64=4 continue=3", package=META
)

record(
    "LabelSelectorRequirement",
    "key!=1|qualified-name! operator!=2 values:[]string=3|label-value",
    rules="selector-operator",
    package=META,
)

record(
    "LabelSelector",
    "matchLabels:{}string=1|labels matchExpressions:[]LabelSelectorRequirement=2",
    package=META,
    atomic=True,
)

record("StatusCause", "reason=1 message=2 field=3", package=META)

record(
    "StatusDetails",
    "name=1 group=2 kind=3 uid=6 causes:[]StatusCause=4 retryAfterSeconds:int32=5",
    package=META,
)

STATUS = record(
    "Status",
    "apiVersion kind metadata+:ListMeta=1 status=2 message=3 reason=4 details?:StatusDetails=5 code:int32=6",
    package=META,
)

record("Preconditions", "uid?=1 resourceVersion?=2", package=META)

DELETE_OPTIONS = record(
    "DeleteOptions",
    "apiVersion kind gracePeriodSeconds?:int64=1 preconditions?:Preconditions=2 orphanDependents?:bool=3 "
    "propagationPolicy?=4 dryRun:[]string=5 ignoreStoreReadErrorWithClusterBreakingPotential?:bool=6",
    package=META,
)


def kind(name: str, members: str, /, *, package: str = CORE, **columns: Any) -> ObjectType:
    """A type that stands for itself in a request: apiVersion, kind and metadata before its own rows."""
    members = f"apiVersion kind metadata+:ObjectMeta=1 {members}"
    return record(name, members, package=package, metadata=Columns(walked=False), **columns)
