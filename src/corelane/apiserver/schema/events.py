"""Events, in the two groups that show one stored object."""

from corelane.apiserver.schema.core_kinds import OBJECT_REFERENCE
from corelane.apiserver.schema.notation import INT32, MICRO_TIME, STRING, TIME, opt, record, req, val
from corelane.apiserver.schema.object_meta import kind

EVENTS_V1 = "io.k8s.api.events.v1."

EVENT_SOURCE = record(
    "EventSource",
    component=val(STRING),
    host=val(STRING),
)

EVENT_SERIES = record(
    "EventSeries",
    count=val(INT32),
    lastObservedTime=req(MICRO_TIME, optional=True),
)
NEW_EVENT_SERIES = record(
    "EventSeries",
    "",
    EVENTS_V1,
    count=req(INT32),
    lastObservedTime=req(MICRO_TIME),
)

EVENT = kind(
    "Event",
    involvedObject=req(OBJECT_REFERENCE),
    reason=val(STRING),
    message=val(STRING),
    source=req(EVENT_SOURCE, optional=True),
    firstTimestamp=req(TIME, optional=True),
    lastTimestamp=req(TIME, optional=True),
    count=val(INT32),
    type=val(STRING),
    eventTime=req(MICRO_TIME, optional=True),
    series=opt(EVENT_SERIES),
    action=val(STRING),
    related=opt(OBJECT_REFERENCE),
    reportingComponent=req(STRING, go="ReportingController", optional=True),
    reportingInstance=req(STRING, optional=True),
)

NEW_EVENT = kind(
    "Event",
    "",
    EVENTS_V1,
    eventTime=req(MICRO_TIME),
    series=opt(NEW_EVENT_SERIES),
    reportingController=val(STRING),
    reportingInstance=val(STRING),
    action=val(STRING),
    reason=val(STRING),
    regarding=req(OBJECT_REFERENCE, optional=True),
    related=opt(OBJECT_REFERENCE),
    note=val(STRING),
    type=val(STRING),
    deprecatedSource=req(EVENT_SOURCE, optional=True),
    deprecatedFirstTimestamp=req(TIME, optional=True),
    deprecatedLastTimestamp=req(TIME, optional=True),
    deprecatedCount=val(INT32),
)
