"""Events of events.k8s.io are held to that group's rules, those of the core group to fewer."""

NEW = "/apis/events.k8s.io/v1/namespaces/default/events"
CORE = "/api/v1/namespaces/default/events"
EVENT = {
    "apiVersion": "events.k8s.io/v1",
    "kind": "Event",
    "metadata": {"name": "e"},
    "eventTime": "2026-01-02T03:04:05.123456Z",
    "reportingController": "example.com/c",
    "reportingInstance": "i",
    "action": "Act",
    "reason": "Started",
    "type": "Normal",
    "regarding": {"kind": "Pod", "namespace": "default", "name": "p"},
}


async def test_the_new_group_refuses_what_the_core_group_takes(api):
    for change, field in (
        ({"deprecatedCount": 1}, "count"),
        ({"deprecatedSource": {"component": "c"}}, "source"),
        ({"type": "Odd"}, "type"),
        ({"eventTime": None}, "eventTime"),
        ({"reportingController": ""}, "reportingController"),
        ({"series": {"count": 1, "lastObservedTime": EVENT["eventTime"]}}, "series.count"),
    ):
        answer = await api("POST", NEW, EVENT | change)
        assert answer.status == 422, change
        assert field in [cause["field"] for cause in answer.body["details"]["causes"]]
    core = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "c"}, "type": "Odd", "count": 1}
    assert (await api("POST", CORE, core | {"involvedObject": {"namespace": "default"}})).status == 201
    await api.made(NEW, EVENT)
