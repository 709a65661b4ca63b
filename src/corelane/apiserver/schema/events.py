"""Events, in the two groups that show one stored object."""

from corelane.apiserver.schema.core_kinds import OBJECT_REFERENCE
from corelane.apiserver.schema.notation import INT32, MICRO_TIME, STRING, TIME, opt, record, req, val
from corelane.apiserver.schema.object_meta import kind

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
