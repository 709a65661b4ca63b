"""The types that every kind shares: metadata, label selectors, Status, delete options."""

from corelane.apiserver.schema.notation import (
    BOOL,
    CORE,
    INT32,
    INT64,
    RAW,
    STRING,
    TIME,
    Field,
    List,
    Map,
    Record,
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
    apiVersion=req(STRING, go="APIVersion"),
    kind=req(STRING),
    name=req(STRING),
    uid=req(STRING, go="UID"),
    controller=opt(BOOL),
    blockOwnerDeletion=opt(BOOL),
)

MANAGED_FIELDS_ENTRY = record(
    "ManagedFieldsEntry",
    "",
    META,
    manager=val(STRING),
    operation=val(STRING),
    apiVersion=val(STRING, go="APIVersion"),
    time=opt(TIME),
    fieldsType=val(STRING),
    fieldsV1=opt(RAW),
    subresource=val(STRING),
)

OBJECT_META = record(
    "ObjectMeta",
    "",
    META,
    name=val(STRING),
    generateName=val(STRING),
    namespace=val(STRING),
    selfLink=val(STRING),
    uid=val(STRING, go="UID"),
    resourceVersion=val(STRING),
    generation=val(INT64),
    creationTimestamp=opt(TIME),
    deletionTimestamp=opt(TIME),
    deletionGracePeriodSeconds=opt(INT64),
    labels=val(Map(STRING)),
    annotations=val(Map(STRING)),
    ownerReferences=val(List(OWNER_REFERENCE), merge="uid"),
    finalizers=val(List(STRING), strategy="merge", list="set"),
    managedFields=val(List(MANAGED_FIELDS_ENTRY)),
)

LIST_META = record(
    "ListMeta",
    "",
    META,
    selfLink=val(STRING),
    resourceVersion=val(STRING),
    remainingItemCount=opt(INT64),
    **{"continue": val(STRING)},
)

LABEL_SELECTOR_REQUIREMENT = record(
    "LabelSelectorRequirement",
    "@selector-operator key values",
    META,
    key=req(STRING, check="qualified-name!"),
    operator=req(STRING),
    values=val(List(STRING), check="label-values"),
)

LABEL_SELECTOR = record(
    "LabelSelector",
    "",
    META,
    matchLabels=val(Map(STRING), check="labels"),
    matchExpressions=val(List(LABEL_SELECTOR_REQUIREMENT)),
)

STATUS_CAUSE = record(
    "StatusCause",
    "",
    META,
    reason=val(STRING, go="Type"),
    message=val(STRING),
    field=val(STRING),
)

STATUS_DETAILS = record(
    "StatusDetails",
    "",
    META,
    name=val(STRING),
    group=val(STRING),
    kind=val(STRING),
    uid=val(STRING, go="UID"),
    causes=val(List(STATUS_CAUSE)),
    retryAfterSeconds=val(INT32),
)

STATUS = record(
    "Status",
    "",
    META,
    apiVersion=val(STRING, go="APIVersion"),
    kind=val(STRING),
    metadata=req(LIST_META, optional=True),
    status=val(STRING),
    message=val(STRING),
    reason=val(STRING),
    details=opt(STATUS_DETAILS),
    code=val(INT32),
)

PRECONDITIONS = record(
    "Preconditions",
    "",
    META,
    uid=opt(STRING, go="UID"),
    resourceVersion=opt(STRING),
)

DELETE_OPTIONS = record(
    "DeleteOptions",
    "",
    META,
    apiVersion=val(STRING, go="APIVersion"),
    kind=val(STRING),
    gracePeriodSeconds=opt(INT64),
    preconditions=opt(PRECONDITIONS),
    orphanDependents=opt(BOOL),
    propagationPolicy=opt(STRING),
    dryRun=val(List(STRING)),
    ignoreStoreReadErrorWithClusterBreakingPotential=opt(BOOL),
)


def kind(name: str, order: str = "", package: str = CORE, /, **rows: Field) -> Record:
    """A type that stands for itself in a request: apiVersion, kind and metadata before its own rows."""
    envelope = {
        "apiVersion": val(STRING, go="APIVersion"),
        "kind": val(STRING),
        "metadata": req(OBJECT_META, go="ObjectMeta", optional=True),
    }
    return record(name, order, package, **envelope, **rows)
