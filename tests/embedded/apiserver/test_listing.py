"""Lists: pages of one moment, exact and old revisions, forms."""

import base64
import json

import pytest

from corelane.embedded.apiserver.api_requests import list_options, parse
from corelane.embedded.apiserver.status_errors import StatusError
from corelane.embedded.apiserver.store import database, lists_and_watches, server_backend
from support.apiserver import CONFIG_MAPS, config_map

FORM = "application/json;as={};v=v1;g=meta.k8s.io"


def names(answer):
    return [item["metadata"]["name"] for item in answer.body["items"]]


async def several(api, *wanted):
    for name in wanted:
        await api.made(CONFIG_MAPS, config_map(name) | {"metadata": {"name": name, "labels": {"l": name}}})


async def test_pages_show_one_moment_whatever_happens_between(api):
    await several(api, *"abcde")
    first = await api.get(f"{CONFIG_MAPS}?limit=2")
    assert names(first) == ["a", "b"]
    assert first.body["metadata"]["remainingItemCount"] == 3
    await api("DELETE", f"{CONFIG_MAPS}/d")
    await several(api, "bb")
    token = first.body["metadata"]["continue"]
    second = await api.get(f"{CONFIG_MAPS}?limit=2&continue={token}")
    assert names(second) == ["c", "d"]
    rest = await api.get(f"{CONFIG_MAPS}?continue={second.body['metadata']['continue']}")
    assert names(rest) == ["e"]
    assert {a.body["metadata"]["resourceVersion"] for a in (first, second, rest)} == {
        first.body["metadata"]["resourceVersion"]
    }
    assert names(await api.get(CONFIG_MAPS)) == ["a", "b", "bb", "c", "e"]


async def test_the_remaining_count_is_not_told_of_a_selection(api):
    await several(api, *"abc")
    page = await api.get(f"{CONFIG_MAPS}?limit=1&labelSelector=l%20notin%20(z)")
    assert names(page) == ["a"]
    assert "remainingItemCount" not in page.body["metadata"]


async def test_a_revision_can_be_asked_for_exactly(api):
    await several(api, "a")
    then = (await api.get(CONFIG_MAPS)).body["metadata"]["resourceVersion"]
    await several(api, "b")
    exact = await api.get(f"{CONFIG_MAPS}?resourceVersion={then}&resourceVersionMatch=Exact")
    assert (names(exact), exact.body["metadata"]["resourceVersion"]) == (["a"], then)
    newer = await api.get(f"{CONFIG_MAPS}?resourceVersion={then}&resourceVersionMatch=NotOlderThan")
    assert names(newer) == ["a", "b"]


def token_of(document):
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")


TOKEN = {"v": "meta.k8s.io/v1", "rv": 1, "start": "default/a"}


@pytest.mark.parametrize(
    "token",
    [
        "garbage", "!!", "ab=", "abcde", "",
        token_of([]), token_of(None), token_of(TOKEN | {"v": "v9"}), token_of(TOKEN | {"rv": "1"}),
        token_of(TOKEN | {"rv": 0}), token_of(TOKEN | {"start": ""}), token_of(TOKEN | {"start": "../a"}),
        token_of(TOKEN | {"start": "default//a"}),
    ],
)  # fmt: skip
def test_a_token_of_another_make_is_refused(token):
    with pytest.raises(StatusError, match="invalid continue token, list again without it") as error:
        lists_and_watches._read_token(token)
    assert error.value.code == 400


def memory(window=10_000):
    return server_backend.Backend(database.Store(None, lambda resource, obj: {}, window), "s")


def page(backend, query):
    target = parse(CONFIG_MAPS, "GET", {})
    return lists_and_watches.page(backend, target, list_options(query, watch=False))


def put(backend, *wanted):
    for name in wanted:
        obj = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}}
        backend.store.put("configmaps", f"default/{name}", obj)


def test_a_page_that_is_too_old_offers_to_go_on_all_the_same():
    backend = memory(window=5)
    put(backend, *"abcd")
    first = page(backend, {"limit": "2"})
    put(backend, *"aaaaaaz")
    with pytest.raises(StatusError) as error:
        page(backend, {"limit": "2", "continue": first.meta["continue"]})
    assert (error.value.code, error.value.reason) == (410, "Expired")
    inconsistent = error.value.body()["metadata"]["continue"]
    found = page(backend, {"continue": inconsistent})
    assert [record.key for record in found.records] == ["default/c", "default/d", "default/z"]


def test_an_exact_revision_that_is_too_old_is_410():
    backend = memory(window=2)
    put(backend, *"abcd")
    with pytest.raises(StatusError) as error:
        page(backend, {"resourceVersion": "1", "resourceVersionMatch": "Exact"})
    assert error.value.code == 410


async def test_a_list_comes_in_the_form_asked_for(api):
    await several(api, *"ab")
    table = await api.get(CONFIG_MAPS, headers={"Accept": FORM.format("Table")})
    assert [row["cells"][0] for row in table.body["rows"]] == ["a", "b"]
    partial = await api.get(CONFIG_MAPS, headers={"Accept": FORM.format("PartialObjectMetadataList")})
    assert partial.body["kind"] == "PartialObjectMetadataList"
    assert [item["kind"] for item in partial.body["items"]] == ["PartialObjectMetadata"] * 2
    wrong = await api.get(CONFIG_MAPS, headers={"Accept": FORM.format("PartialObjectMetadata")})
    assert (wrong.status, "not a form of a list" in wrong.body["message"]) == (406, True)


async def test_a_page_of_many_objects_names_how_many_remain(api):
    put(api.server._context.backend, *(f"n{number:05}" for number in range(10_000)))
    answer = await api.get(f"{CONFIG_MAPS}?limit=500")
    assert names(answer) == [f"n{number:05}" for number in range(500)]
    assert answer.body["metadata"]["remainingItemCount"] == 9_500


async def test_a_partial_list_of_nothing_has_no_items(api):
    partial = await api.get(CONFIG_MAPS, headers={"Accept": FORM.format("PartialObjectMetadataList")})
    assert partial.body["items"] is None
    assert (await api.get(CONFIG_MAPS)).body["items"] == []


async def test_a_wrong_token_is_found_before_a_version_that_is_not_allowed_with_it(api):
    both = await api.get(f"{CONFIG_MAPS}?continue=!&resourceVersion=5")
    assert "invalid continue token" in both.body["message"]
    token = token_of(TOKEN)
    both = await api.get(f"{CONFIG_MAPS}?continue={token}&resourceVersion=5")
    assert both.body["message"] == "specifying resource version is not allowed when using continue"
