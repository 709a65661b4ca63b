"""Long answers are gzipped for clients that ask for it, as upstream's `responsewriters` does it."""

import gzip

import aiohttp
import pytest

from support.apiserver import ADMIN, config_map

MAPS = "/api/v1/namespaces/default/configmaps"
LIMIT = 128 * 1024


async def raw(api, path, encoding="gzip", method="GET", **more):
    """Headers and bytes as they are sent."""
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        headers = {"Authorization": f"Bearer {ADMIN}", "Accept-Encoding": encoding}
        async with session.request(method, api.server.url + path, headers=headers, **more) as answer:
            return answer.headers, await answer.read()


async def stored(api, size, name="c"):
    """A ConfigMap whose JSON has this many bytes."""
    await api.made(MAPS, config_map(name, data={"text": ""}))
    _, body = await raw(api, f"{MAPS}/{name}", "identity")
    patch = {"data": {"text": "x" * (size - len(body))}}
    for _ in range(2):  # the managed fields have the time of the change
        headers = {"Content-Type": "application/merge-patch+json"}
        await api("PATCH", f"{MAPS}/{name}", patch, headers=headers)
        _, body = await raw(api, f"{MAPS}/{name}", "identity")
        patch["data"]["text"] = "x" * (len(patch["data"]["text"]) + size - len(body))
    assert len(body) == size


@pytest.mark.parametrize("encoding", ["gzip", "deflate, gzip", "gzip, deflate, br", "br ,  gzip"])
async def test_an_answer_of_more_than_128_kib_is_gzipped(api, encoding):
    await stored(api, LIMIT + 1)
    _, plain = await raw(api, f"{MAPS}/c", "identity")
    for path in (f"{MAPS}/c", MAPS, "/api/v1/configmaps?limit=10"):
        headers, body = await raw(api, path, encoding)
        assert headers["Content-Encoding"] == "gzip"
        assert headers["Vary"] == "Accept-Encoding"
        assert int(headers["Content-Length"]) == len(body) < LIMIT // 10
        _, expected = await raw(api, path, "identity")
        assert gzip.decompress(body) == expected
    assert len(plain) == LIMIT + 1


async def test_shorter_answers_are_not_gzipped(api):
    await stored(api, LIMIT)
    headers, body = await raw(api, f"{MAPS}/c")
    assert "Content-Encoding" not in headers and "Vary" not in headers
    assert len(body) == LIMIT


@pytest.mark.parametrize("encoding", ["", "identity", "deflate", "x-gzip", "gzip;q=1.0", "*", "GZIP"])
async def test_nothing_is_gzipped_for_others(api, encoding):
    """Upstream compares whole tokens, and knows no weights."""
    await stored(api, LIMIT + 1)
    headers, body = await raw(api, f"{MAPS}/c", encoding)
    assert "Content-Encoding" not in headers and len(body) == LIMIT + 1


async def test_answers_to_writes_and_in_other_forms_are_gzipped_too(api):
    await stored(api, LIMIT + 1)
    metadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    for accept in ("application/yaml", metadata):
        async with api.session.get(
            api.server.url + MAPS, headers={"Authorization": f"Bearer {ADMIN}", "Accept": accept}
        ) as answer:
            assert ("Content-Encoding" in answer.headers) == ("yaml" in accept)
            assert await answer.read()
    body = config_map("other", data={"text": "y" * LIMIT})
    headers, sent = await raw(api, MAPS, method="POST", json=body)
    assert headers["Content-Encoding"] == "gzip"
    assert b'"name":"other"' in gzip.decompress(sent)


async def test_watches_and_documents_are_not_gzipped(api):
    await stored(api, LIMIT + 1)
    async with api.session.get(
        f"{api.server.url}{MAPS}?watch=1&timeoutSeconds=1", headers={"Authorization": f"Bearer {ADMIN}"}
    ) as answer:
        assert "Content-Encoding" not in answer.headers
        assert len(await answer.read()) > LIMIT
    headers, _ = await raw(api, "/openapi/v2")
    assert "Content-Encoding" not in headers
