"""Lists: pages of one moment, exact and old revisions, forms."""

import base64
import json

import pytest

from corelane.embedded.apiserver.api_requests import list_options, parse
from corelane.embedded.apiserver.status_errors import StatusError
from corelane.embedded.apiserver.store import database, lists_and_watches, server_backend
from support.apiserver import CONFIG_MAPS


def names(answer):
    return [item["metadata"]["name"] for item in answer.body["items"]]


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


async def test_a_page_of_many_objects_names_how_many_remain(api):
    put(api.server._context.backend, *(f"n{number:05}" for number in range(10_000)))
    answer = await api.get(f"{CONFIG_MAPS}?limit=500")
    assert names(answer) == [f"n{number:05}" for number in range(500)]
    assert answer.body["metadata"]["remainingItemCount"] == 9_500


async def test_a_wrong_token_is_found_before_a_version_that_is_not_allowed_with_it(api):
    both = await api.get(f"{CONFIG_MAPS}?continue=!&resourceVersion=5")
    assert "invalid continue token" in both.body["message"]
    token = token_of(TOKEN)
    both = await api.get(f"{CONFIG_MAPS}?continue={token}&resourceVersion=5")
    assert both.body["message"] == "specifying resource version is not allowed when using continue"
