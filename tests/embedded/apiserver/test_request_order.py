"""Which of several faults of one request is reported: after k8s.io/apiserver's handlers and registries."""

import pytest

from support.apiserver import CONFIG_MAPS, PODS, config_map, pod


def eviction(**options):
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "p"},
        **({"deleteOptions": options} if options else {}),
    }


@pytest.mark.parametrize(("asked", "shown"), [(["x"], "[x]"), (["All", "All"], "[All All]")])
async def test_dry_runs_of_query_and_body_that_differ_are_refused(api, asked, shown):
    await api.made(PODS, pod())
    answer = await api("POST", f"{PODS}/p/eviction?dryRun=All", eviction(dryRun=asked))
    assert answer.status == 500
    assert answer.body["message"] == (
        f"Non-matching dry-run options in request and content: [All] and {shown}"
    )
    assert "reason" not in answer.body
    missing = await api("POST", f"{PODS}/none/eviction?dryRun=All", eviction(dryRun=asked))
    assert missing.body["message"] == "name in URL does not match name in Eviction object"
    assert (await api.get(f"{PODS}/p")).status == 200


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("limit=x", 'limit: "x" is not an integer of 64 bits'),
        ("labelSelector=a=(", "label selector: got"),
        ("fieldSelector=spec.none=1", "field selector: spec.none is unknown"),
        (
            "resourceVersionMatch=Exact",
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
    ],
)
async def test_the_list_options_of_a_deleted_collection_are_read_before_its_body(api, query, message):
    await api.made(CONFIG_MAPS, config_map())
    headers = {"Content-Type": "application/json"}
    for body in ("{", '{"propagationPolicy":"x"}', ""):
        answer = await api("DELETE", f"{CONFIG_MAPS}?{query}", data=body, headers=headers)
        listed = await api.get(f"{CONFIG_MAPS}?{query}")
        assert message in answer.body["message"]
        assert (answer.status, answer.body) == (listed.status, listed.body)
    wrong = await api("DELETE", CONFIG_MAPS, data="{", headers=headers)
    assert wrong.status == 400
    assert (await api.get(f"{CONFIG_MAPS}/c")).status == 200
