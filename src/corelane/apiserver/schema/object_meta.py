"""The types that every kind shares: metadata, label selectors, Status, delete options."""

from corelane.apiserver.schema.notation import (
    BOOL,
    CORE,
    INT32,
    INT64,
    RAW,
    STRING,
    TIME,
    FieldRow,
    ListType,
    MapType,
    ObjectType,
    opt,
    record,
    req,
    val,
)

META = "io.k8s.apimachinery.pkg.apis.meta.v1."

OWNER_REFERENCE = record(
    "OwnerReference",
    "",
    META,
    apiVersion=req(STRING, 5, go="APIVersion"),
    kind=req(STRING, 1),
    name=req(STRING, 3),
    uid=req(STRING, 4, go="UID"),
    controller=opt(BOOL, 6),
    blockOwnerDeletion=opt(BOOL, 7),
)

MANAGED_FIELDS_ENTRY = record(
    "ManagedFieldsEntry",
    "",
    META,
    manager=val(STRING, 1),
    operation=val(STRING, 2),
    apiVersion=val(STRING, 3, go="APIVersion"),
    time=opt(TIME, 4),
    fieldsType=val(STRING, 6),
    fieldsV1=opt(RAW, 7),
    subresource=val(STRING, 8),
)

OBJECT_META = record(
    "ObjectMeta",
    "",
    META,
    name=val(STRING, 1),
    generateName=val(STRING, 2),
    namespace=val(STRING, 3),
    selfLink=val(STRING, 4),
    uid=val(STRING, 5, go="UID"),
    resourceVersion=val(STRING, 6),
    generation=val(INT64, 7),
    creationTimestamp=opt(TIME, 8),
    deletionTimestamp=opt(TIME, 9),
    deletionGracePeriodSeconds=opt(INT64, 10),
    labels=val(MapType(STRING), 11),
    annotations=val(MapType(STRING), 12),
    ownerReferences=val(ListType(OWNER_REFERENCE), 13, merge="uid"),
    finalizers=val(ListType(STRING), 14, strategy="merge", list="set"),
    managedFields=val(ListType(MANAGED_FIELDS_ENTRY), 17),
)

LIST_META = record(
    "ListMeta",
    "",
    META,
    selfLink=val(STRING, 1),
    resourceVersion=val(STRING, 2),
    remainingItemCount=opt(INT64, 4),
    **{"continue": val(STRING, 3)},
)

LABEL_SELECTOR_REQUIREMENT = record(
    "LabelSelectorRequirement",
    "@selector-operator key values",
    META,
    key=req(STRING, 1, check="qualified-name!"),
    operator=req(STRING, 2),
    values=val(ListType(STRING), 3, check="label-values"),
)

LABEL_SELECTOR = record(
    "LabelSelector",
    "",
    META,
    matchLabels=val(MapType(STRING), 1, check="labels"),
    matchExpressions=val(ListType(LABEL_SELECTOR_REQUIREMENT), 2),
)

STATUS_CAUSE = record(
    "StatusCause", "", META, reason=val(STRING, 1, go="Type"), message=val(STRING, 2), field=val(STRING, 3)
)

STATUS_DETAILS = record(
    "StatusDetails",
    "",
    META,
    name=val(STRING, 1),
    group=val(STRING, 2),
    kind=val(STRING, 3),
    uid=val(STRING, 6, go="UID"),
    causes=val(ListType(STATUS_CAUSE), 4),
    retryAfterSeconds=val(INT32, 5),
)

STATUS = record(
    "Status",
    "",
    META,
    apiVersion=val(STRING, go="APIVersion"),
    kind=val(STRING),
    metadata=req(LIST_META, 1, optional=True),
    status=val(STRING, 2),
    message=val(STRING, 3),
    reason=val(STRING, 4),
    details=opt(STATUS_DETAILS, 5),
    code=val(INT32, 6),
)

PRECONDITIONS = record(
    "Preconditions", "", META, uid=opt(STRING, 1, go="UID"), resourceVersion=opt(STRING, 2)
)

DELETE_OPTIONS = record(
    "DeleteOptions",
    "",
    META,
    apiVersion=val(STRING, go="APIVersion"),
    kind=val(STRING),
    gracePeriodSeconds=opt(INT64, 1),
    preconditions=opt(PRECONDITIONS, 2),
    orphanDependents=opt(BOOL, 3),
    propagationPolicy=opt(STRING, 4),
    dryRun=val(ListType(STRING), 5),
    ignoreStoreReadErrorWithClusterBreakingPotential=opt(BOOL, 6),
)


def kind(name: str, order: str = "", package: str = CORE, /, **rows: FieldRow) -> ObjectType:
    """A type that stands for itself in a request: apiVersion, kind and metadata before its own rows."""
    envelope = {
        "apiVersion": val(STRING, go="APIVersion"),
        "kind": val(STRING),
        "metadata": req(OBJECT_META, 1, go="ObjectMeta", optional=True),
    }
    return record(name, order, package, **envelope, **rows)
