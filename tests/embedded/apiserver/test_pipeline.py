"""Create, update and patch: names, locks, admission, dry runs."""

import asyncio

from corelane.embedded.apiserver.store.server_backend import generate_name
from support.apiserver import CONFIG_MAPS, MERGE, NAMESPACES, PODS, config_map, pod, serving

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def test_a_generated_name_keeps_within_63_characters():
    made = generate_name("a" * 80)
    assert len(made) == 63
    assert generate_name("web-").startswith("web-")
    assert generate_name("web-") != generate_name("web-")


async def test_a_generated_name_is_given_back_and_used(api):
    answers = [await api("POST", CONFIG_MAPS, {"metadata": {"generateName": "g-"}}) for _ in range(5)]
    names = {answer.body["metadata"]["name"] for answer in answers}
    assert len(names) == 5
    for name in names:
        assert (await api.get(f"{CONFIG_MAPS}/{name}")).status == 200


async def test_the_server_sets_what_is_its_own(api):
    meta = {"name": "c", "uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z", "selfLink": "/x"}
    made = await api.made(CONFIG_MAPS, {"metadata": meta})
    assert made["metadata"]["uid"] != "mine"
    assert not made["metadata"]["creationTimestamp"].startswith("2001")
    assert "selfLink" not in made["metadata"]
    refused = await api(
        "POST", CONFIG_MAPS, config_map("d") | {"metadata": {"name": "d", "resourceVersion": "7"}}
    )
    assert refused.status == 500


async def test_a_namespace_must_exist_and_agree(api):
    missing = await api("POST", f"{NAMESPACES}/none/configmaps", config_map())
    assert (missing.status, missing.body["details"]["kind"]) == (404, "namespaces")
    other = {"metadata": {"name": "c", "namespace": "elsewhere"}}
    assert (await api("POST", CONFIG_MAPS, other)).status == 400


async def test_two_writers_cannot_overwrite_each_other(api):
    made = await api.made(CONFIG_MAPS, config_map(data={"a": "1"}))
    path = f"{CONFIG_MAPS}/c"
    first = await api("PUT", path, made | {"data": {"a": "2"}})
    assert first.status == 200
    late = await api("PUT", path, made | {"data": {"a": "3"}})
    assert (late.status, late.body["reason"]) == (409, "Conflict")
    assert (await api.get(path)).body["data"] == {"a": "2"}


async def test_of_many_writers_at_once_one_wins_each_round(api):
    made = await api.made(CONFIG_MAPS, config_map(data={"a": "0"}))
    path = f"{CONFIG_MAPS}/c"
    for number in range(5):
        puts = [api("PUT", path, made | {"data": {"a": f"{number}-{i}"}}) for i in range(8)]
        answers = await asyncio.gather(*puts)
        assert sorted(answer.status for answer in answers) == [200] + [409] * 7
        made = (await api.get(path)).body


async def test_what_changes_nothing_is_not_written(api):
    made = await api.made(CONFIG_MAPS, config_map(data={"a": "1"}))
    again = await api("PUT", f"{CONFIG_MAPS}/c", config_map(data={"a": "1"}))
    assert again.body["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_a_lease_may_be_created_by_put_and_needs_its_version_afterwards(api):
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}}
    made = await api("PUT", f"{LEASES}/l", lease)
    assert made.status == 201
    assert (await api("PUT", f"{LEASES}/l", lease)).status == 422
    made.body["spec"]["holderIdentity"] = "b"
    assert (await api("PUT", f"{LEASES}/l", made.body)).status == 200
    assert (await api("PUT", f"{CONFIG_MAPS}/c", config_map())).status == 404


async def test_a_dry_run_answers_and_leaves_no_trace(api):
    dry = await api("POST", f"{CONFIG_MAPS}?dryRun=All", config_map())
    assert dry.status == 201
    assert "resourceVersion" not in dry.body["metadata"]
    assert (await api.get(f"{CONFIG_MAPS}/c")).status == 404
    await api.made(CONFIG_MAPS, config_map(data={"a": "1"}))
    changed = await api("PUT", f"{CONFIG_MAPS}/c?dryRun=All", config_map(data={"a": "2"}))
    assert changed.body["data"] == {"a": "2"}
    await api("DELETE", f"{CONFIG_MAPS}/c?dryRun=All")
    assert (await api.get(f"{CONFIG_MAPS}/c")).body["data"] == {"a": "1"}


async def test_a_patch_is_locked_only_where_it_says_a_version(api):
    made = await api.made(CONFIG_MAPS, config_map(data={"a": "1"}))
    path, old = f"{CONFIG_MAPS}/c", made["metadata"]["resourceVersion"]
    assert (await api("PATCH", path, {"data": {"a": "2"}}, headers=MERGE)).status == 200
    stale = {"metadata": {"resourceVersion": old}, "data": {"a": "3"}}
    assert (await api("PATCH", path, stale, headers=MERGE)).status == 409
    assert (await api("PATCH", f"{CONFIG_MAPS}/none", {"data": {}}, headers=MERGE)).status == 404


async def test_a_pod_takes_its_priority_from_its_class(api):
    made = await api.made(PODS, pod("plain"))
    assert (made["spec"]["priority"], made["spec"].get("priorityClassName")) == (0, None)
    high = {"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "Never"}
    await api.made(CLASSES, high)
    made = await api.made(PODS, pod("high", priorityClassName="high"))
    assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (1000, "Never")
    missing = await api("POST", PODS, pod("x", priorityClassName="none"))
    assert missing.body["message"] == 'pods "x" is forbidden: no PriorityClass with name none was found'
    wrong = await api("POST", PODS, pod("x", priorityClassName="high", priority=7))
    assert "computed 1000 from the given PriorityClass" in wrong.body["message"]
    wrong = await api("POST", PODS, pod("x", preemptionPolicy="Never"))
    assert "PreemptionPolicy (Never)" in wrong.body["message"]


async def test_one_class_at_most_is_the_default(api):
    await api.made(CLASSES, {"metadata": {"name": "std"}, "value": 50, "globalDefault": True})
    made = await api.made(PODS, pod())
    assert (made["spec"]["priority"], made["spec"]["priorityClassName"]) == (50, "std")
    second = await api("POST", CLASSES, {"metadata": {"name": "b"}, "value": 5, "globalDefault": True})
    assert second.status == 403
    assert "std is already marked as default" in second.body["message"]


async def test_the_default_scheduler_is_ours_to_name():
    async with serving(default_scheduler="mine") as api:
        assert (await api.made(PODS, pod()))["spec"]["schedulerName"] == "mine"
        other = await api.made(PODS, pod("q", schedulerName="theirs"))
        assert other["spec"]["schedulerName"] == "theirs"


async def test_yaml_goes_in_and_out(api):
    headers = {"Content-Type": "application/yaml", "Accept": "application/yaml"}
    answer = await api("POST", CONFIG_MAPS, data="metadata: {name: yam}\ndata: {a: 'on'}\n", headers=headers)
    assert answer.status == 201
    assert "a: 'on'" in answer.body
    missing = await api.get(f"{CONFIG_MAPS}/none", headers={"Accept": "application/yaml"})
    assert "reason: NotFound" in missing.body
    listed = await api.get(CONFIG_MAPS, headers={"Accept": "application/yaml"})
    assert "kind: ConfigMapList" in listed.body


async def test_both_faces_of_an_event_are_one_object(api):
    new = {
        "metadata": {"name": "e"},
        "eventTime": "2020-01-01T00:00:00.000000Z",
        "reportingController": "corelane.io/test",
        "reportingInstance": "i",
        "action": "Bind",
        "reason": "Scheduled",
        "type": "Normal",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
        "note": "hello",
    }
    modern, core = "/apis/events.k8s.io/v1/namespaces/default/events", f"{NAMESPACES}/default/events"
    made = await api.made(modern, new)
    old = (await api.get(f"{core}/e")).body
    assert (old["message"], old["metadata"]["uid"]) == ("hello", made["metadata"]["uid"])
    for path in (core, modern):
        listed = await api.get(f"{path}?fieldSelector=reason=Scheduled")
        assert [item["metadata"]["name"] for item in listed.body["items"]] == ["e"]
    assert (await api("DELETE", f"{core}/e")).status == 200
    assert (await api.get(f"{modern}/e")).status == 404
