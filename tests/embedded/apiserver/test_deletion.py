"""Deletion: grace, finalizers, preconditions, collections, namespaces."""

from support.apiserver import CONFIG_MAPS, MERGE, NAMESPACES, PODS, config_map, pod


def held(name, *finalizers, **body):
    return {"metadata": {"name": name, "finalizers": list(finalizers)}, **body}


async def test_a_bound_pod_gets_its_grace_and_an_unbound_one_none(api):
    await api.made(PODS, pod("bound", nodeName="n1", terminationGracePeriodSeconds=17))
    await api.made(PODS, pod("free"))
    bound = await api("DELETE", f"{PODS}/bound")
    assert bound.body["metadata"]["deletionGracePeriodSeconds"] == 17
    assert bound.body["metadata"]["generation"] == 2
    assert (await api.get(f"{PODS}/bound")).status == 200
    free = await api("DELETE", f"{PODS}/free")
    assert free.body["metadata"]["deletionGracePeriodSeconds"] == 0
    assert (await api.get(f"{PODS}/free")).status == 404


async def test_a_grace_period_is_only_ever_shortened(api):
    await api.made(PODS, pod(nodeName="n1"))
    path = f"{PODS}/p"
    first = (await api("DELETE", path)).body["metadata"]
    longer = (await api("DELETE", f"{path}?gracePeriodSeconds=60")).body["metadata"]
    assert longer == first
    shorter = (await api("DELETE", path, {"gracePeriodSeconds": 5})).body["metadata"]
    assert shorter["deletionGracePeriodSeconds"] == 5
    assert shorter["deletionTimestamp"] < first["deletionTimestamp"]
    assert shorter["generation"] == first["generation"]
    forced = await api("DELETE", path, {"gracePeriodSeconds": 0})
    assert forced.status == 200
    assert (await api.get(path)).status == 404


async def test_a_grace_period_beyond_any_date_counts_as_136_years(api):
    """Such a pod can be deleted, and its grace period shortened again."""
    longest = 2**63 - 1
    for name, own, query in (("own", longest, ""), ("asked", 1, f"?gracePeriodSeconds={longest}")):
        await api.made(PODS, pod(name, nodeName="n1", terminationGracePeriodSeconds=own))
        first = (await api("DELETE", f"{PODS}/{name}{query}")).body["metadata"]
        assert first["deletionGracePeriodSeconds"] == 2**32
        shorter = (await api("DELETE", f"{PODS}/{name}?gracePeriodSeconds=5")).body["metadata"]
        assert shorter["deletionGracePeriodSeconds"] == 5
        assert shorter["deletionTimestamp"] < first["deletionTimestamp"]


async def test_watchers_see_a_pods_last_state_before_it_goes(api):
    await api.made(PODS, pod())
    async with api.watching(PODS) as stream:
        await stream.next()
        await api("DELETE", f"{PODS}/p")
        changed, deleted = await stream.take(2)
        assert (changed["type"], deleted["type"]) == ("MODIFIED", "DELETED")
        assert deleted["object"]["metadata"]["deletionGracePeriodSeconds"] == 0


async def test_finalizers_hold_an_object_until_the_last_is_taken_away(api):
    await api.made(CONFIG_MAPS, held("c", "a.example/x", "b.example/y"))
    path = f"{CONFIG_MAPS}/c"
    marked = await api("DELETE", path)
    assert marked.body["metadata"]["deletionTimestamp"]
    again = await api("POST", CONFIG_MAPS, config_map())
    assert again.body["message"] == 'object is being deleted: configmaps "c" already exists'
    one = await api("PATCH", path, {"metadata": {"finalizers": ["b.example/y"]}}, headers=MERGE)
    assert one.status == 200
    assert (await api.get(path)).status == 200
    async with api.watching(CONFIG_MAPS, fieldSelector="metadata.name=c") as stream:
        await stream.next()
        await api("PATCH", path, {"metadata": {"finalizers": None}}, headers=MERGE)
        assert await stream.seen(1) == [("DELETED", "c")]
    assert (await api.get(path)).status == 404


async def test_propagation_leaves_its_finalizer_for_a_garbage_collector(api):
    for policy, finalizer in (("Foreground", "foregroundDeletion"), ("Orphan", "orphan")):
        name = policy.lower()
        await api.made(CONFIG_MAPS, config_map(name))
        answer = await api("DELETE", f"{CONFIG_MAPS}/{name}?propagationPolicy={policy}")
        assert answer.body["metadata"]["finalizers"] == [finalizer]
    await api.made(CONFIG_MAPS, config_map("plain"))
    gone = await api("DELETE", f"{CONFIG_MAPS}/plain", {"propagationPolicy": "Background"})
    assert gone.body["status"] == "Success"


async def test_preconditions_protect_an_object_of_the_same_name(api):
    made = await api.made(CONFIG_MAPS, config_map())
    path, meta = f"{CONFIG_MAPS}/c", made["metadata"]
    for wrong in ({"uid": "another"}, {"resourceVersion": "1"}, {"uid": meta["uid"], "resourceVersion": "1"}):
        assert (await api("DELETE", path, {"preconditions": wrong})).status == 409
    right = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
    assert (await api("DELETE", path, {"preconditions": right})).status == 200


async def test_a_collection_goes_by_selector(api):
    for name in ("a", "b", "c"):
        await api.made(
            CONFIG_MAPS, {"metadata": {"name": name, "labels": {"keep": str(name == "b").lower()}}}
        )
    dry = await api("DELETE", f"{CONFIG_MAPS}?dryRun=All")
    assert len(dry.body["items"]) == 3
    answer = await api("DELETE", f"{CONFIG_MAPS}?labelSelector=keep!=true")
    assert [item["metadata"]["name"] for item in answer.body["items"]] == ["a", "c"]
    left = await api.get(CONFIG_MAPS)
    assert [item["metadata"]["name"] for item in left.body["items"]] == ["b"]


async def test_a_collection_larger_than_a_batch_goes_whole(api):
    for number in range(120):
        await api.made(CONFIG_MAPS, config_map(f"c{number}"))
    await api("DELETE", CONFIG_MAPS)
    assert (await api.get(CONFIG_MAPS)).body["items"] == []


async def test_a_namespace_ends_when_its_controller_says_it_is_empty(api):
    await api.made(NAMESPACES, {"metadata": {"name": "n"}})
    await api.made(f"{NAMESPACES}/n/configmaps", config_map())
    path = f"{NAMESPACES}/n"
    ending = await api("DELETE", path)
    assert ending.body["status"]["phase"] == "Terminating"
    refused = await api("POST", f"{NAMESPACES}/n/configmaps", config_map("late"))
    assert (refused.status, refused.body["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")
    assert (await api("DELETE", path)).status == 200
    assert (await api("DELETE", f"{NAMESPACES}/n/configmaps/c")).status == 200
    body = (await api.get(path)).body
    body["spec"]["finalizers"] = []
    finished = await api("PUT", f"{path}/finalize", body)
    assert finished.status == 200
    assert (await api.get(path)).status == 404


async def test_a_namespaces_own_finalizers_are_waited_for_too(api):
    await api.made(NAMESPACES, held("n", "hold.example/x"))
    path = f"{NAMESPACES}/n"
    body = (await api("DELETE", path)).body
    body["spec"]["finalizers"] = []
    assert (await api("PUT", f"{path}/finalize", body)).status == 200
    assert (await api.get(path)).status == 200
    await api("PATCH", path, {"metadata": {"finalizers": None}}, headers=MERGE)
    assert (await api.get(path)).status == 404


async def test_what_the_cluster_needs_cannot_be_deleted(api):
    for name in ("default", "kube-system", "kube-public"):
        assert (await api("DELETE", f"{NAMESPACES}/{name}")).status == 403
    path = "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical"
    assert (await api("DELETE", path)).status == 403
    assert (await api("DELETE", f"{CONFIG_MAPS}/none")).status == 404
