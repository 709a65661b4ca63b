"""The replayer passes a right answer and notices each kind of wrong one, against a small scripted server."""

import asyncio
import gzip
import json
from contextlib import asynccontextmanager
from copy import deepcopy
from datetime import UTC, datetime

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from conformance import api_replay, replay
from conformance.api_replay import replay_scenario

CONFIG_MAPS = "/api/v1/namespaces/d/configmaps"
JSON = "application/json"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(api_replay, "QUIET", 0.1)


def config_map(name, version, **data):
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    uid = "0b2d3d3e-9b1f-4c57-8a41-1f6a8a4f1c11"
    metadata = {"name": name, "uid": uid, "resourceVersion": str(version), "creationTimestamp": stamp}
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": data}


def expected_map(name, **data):
    metadata = {"name": name, "uid": "<uid>", "resourceVersion": "<rv>", "creationTimestamp": "<time>"}
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": data}


async def scripted(request):
    """Creates `a` at version 5, changes it to 6, and streams both; everything else is 404 as text."""
    if request.headers.get("Authorization") != "Bearer admintoken":
        return web.json_response({"kind": "Status"}, status=401, headers={"WWW-Authenticate": "Bearer"})
    if request.query.get("watch"):
        return await stream(request)
    if request.method == "POST" and request.path == CONFIG_MAPS:
        assert (await request.json())["metadata"]["name"] == "a"
        return web.json_response(config_map("a", 5, k="1"), status=201)
    if request.method == "PUT" and (await request.json())["metadata"]["resourceVersion"] == "5":
        warning = {"Warning": '299 - "unknown field x"'}
        return web.json_response(config_map("a", 6, k="2"), headers=warning)
    return web.Response(text="404 page not found\n", status=404)


async def stream(request):
    response = web.StreamResponse(headers={"Content-Type": JSON})
    await response.prepare(request)
    since = int(request.query.get("resourceVersion") or "0")
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "5"}}}
    events = [bookmark, {"type": "ADDED", "object": config_map("a", 5, k="1")}]
    events.append({"type": "MODIFIED", "object": config_map("a", 6, k="2")})
    for event in events:
        if int(event["object"]["metadata"]["resourceVersion"]) > since:
            await response.write(json.dumps(event).encode() + b"\n")
    if "timeoutSeconds" not in request.query:
        await asyncio.sleep(2)
    return response


@asynccontextmanager
async def open_scripted():
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", scripted)
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/")


def scenario():
    added = {"type": "ADDED", "object": expected_map("a", k="1")}
    modified = {"type": "MODIFIED", "object": expected_map("a", k="2")}
    created = {"status": 201, "contentType": JSON, "body": expected_map("a", k="1")}
    changed = {"status": 200, "contentType": JSON, "body": expected_map("a", k="2")}
    changed |= {"warnings": ['299 - "unknown field x"'], "checks": {"rv": "increased", "uid": "same"}}
    missing = {"text": "404 page not found\n"}
    watched = {"status": 200, "contentType": JSON, "events": [added, modified]}
    update = {"metadata": {"name": "a", "resourceVersion": "${one}"}}
    steps = [
        {
            "method": "POST",
            "path": CONFIG_MAPS,
            "body": {"metadata": {"name": "a"}},
            "capture": {"one": "metadata.resourceVersion"},
            "expect": created,
        },
        {
            "method": "PUT",
            "path": f"{CONFIG_MAPS}/a",
            "body": update,
            "capture": {"two": "metadata.resourceVersion"},
            "assert": ["one<two", "one!=two"],
            "expect": changed,
        },
        {
            "method": "GET",
            "path": "/none",
            "expect": {"status": 404, "contentType": "text/plain; charset=utf-8", "body": missing},
        },
        {
            "method": "GET",
            "path": CONFIG_MAPS,
            "headers": {"Authorization": None},
            "expect": {
                "status": 401,
                "contentType": "application/json; charset=utf-8",
                "body": {"kind": "Status"},
                "headers": {"www-authenticate": "Bearer"},
            },
        },
        {
            "watch": CONFIG_MAPS,
            "from": "0",
            "take": 2,
            "during": [{"method": "POST", "path": CONFIG_MAPS, "body": {"metadata": {"name": "a"}}}],
            "expect": watched | {"checks": {"rv": "increasing"}},
        },
        {
            "watch": f"{CONFIG_MAPS}?timeoutSeconds=1",
            "from": "${one}",
            "take": "end",
            "expect": {"status": 200, "contentType": JSON, "events": [modified]},
        },
    ]
    for step in steps[:2]:
        step["expect"]["contentType"] = "application/json; charset=utf-8"
    steps[4]["during"][0] |= {"setup": True, "expect": {"status": 201}}
    return {"scenario": "scripted", "category": "watch", "steps": steps}


def failures(recorded):
    outcomes = asyncio.run(replay_scenario(recorded, open_scripted))
    assert len(outcomes) == 7
    return [outcome for outcome in outcomes if outcome.differences]


def test_right_answers_pass():
    assert failures(scenario()) == []


def change(recorded, path, value):
    """Set the member at the dotted path, a list's by its index."""
    *above, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    target = recorded["steps"]
    for part in above:
        target = target[part]
    if value is None:
        del target[last]
    else:
        target[last] = value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("0/expect/status", 200),
        ("0/expect/contentType", "application/yaml"),
        ("0/expect/body/data/k", "2"),
        ("0/expect/body/data/extra", "x"),
        ("0/expect/body/data", None),
        ("0/expect/body/metadata/name", "b"),
        ("0/expect/checks", {"rv": "unchanged", "uid": "same"}),
        ("0/capture/one", "metadata.nothing"),
        ("1/expect/warnings", None),
        ("1/expect/warnings/0", '299 - "other"'),
        ("1/expect/checks/rv", "unchanged"),
        ("1/expect/checks/uid", "different"),
        ("1/expect/checks", None),
        ("1/assert/0", "two<one"),
        ("1/assert/0", "one==two"),
        ("2/expect/status", 400),
        ("3/expect/headers", None),
        ("3/expect/headers/www-authenticate", "Basic"),
        ("4/expect/events/0/type", "MODIFIED"),
        ("4/expect/events/1/object/data/k", "1"),
        ("4/expect/events/1", None),
        ("4/expect/checks/rv", "decreasing"),
        ("4/from", "5"),
        ("4/from", "7"),
        ("4/during/0/expect/status", 200),
        ("5/expect/events", []),
    ],
)
def test_a_changed_expectation_fails(path, value):
    recorded = scenario()
    change(recorded, path, value)
    assert failures(recorded)


def test_an_event_more_than_expected_fails():
    recorded = scenario()
    recorded["steps"][4]["take"] = 1
    del recorded["steps"][4]["expect"]["events"][1]
    assert [f.differences[0][:22] for f in failures(recorded)] == ["events[1]: unexpected "]


def test_a_watch_that_should_end_but_does_not_fails(monkeypatch):
    monkeypatch.setattr(api_replay, "ANSWER_TIMEOUT", 0.5)
    recorded = scenario()
    recorded["steps"][5]["watch"] = CONFIG_MAPS
    assert "did not end" in failures(recorded)[0].differences[0]


def test_a_step_that_needs_a_value_never_captured_fails_by_name():
    recorded = scenario()
    recorded["steps"][5]["from"] = "${three}"
    assert failures(recorded)[0].differences == ("needs ${three}, which an earlier step did not give",)


def test_a_server_that_hangs_up_fails_the_step_and_not_the_replay():
    @asynccontextmanager
    async def nobody():
        yield "http://127.0.0.1:1"

    outcomes = asyncio.run(replay_scenario(scenario(), nobody))
    assert len(outcomes) == 6
    assert all("no answer" in o.differences[0] or "needs" in o.differences[0] for o in outcomes)


def test_the_report_counts_by_category(tmp_path, monkeypatch):
    good, bad, apply = scenario(), scenario(), scenario()
    bad["steps"][0]["expect"]["status"] = 500
    bad["category"], apply["category"] = "create", "ssa"
    path = tmp_path / "v.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, [good, bad, apply])).encode()))
    original = api_replay.replay_scenarios
    monkeypatch.setattr(api_replay, "replay_scenarios", lambda s: original(s, open_scripted))
    report = replay.replay(path, limit=1)
    assert (report.format, report.passed, report.total) == ("kube_api", 20, 21)
    assert report.differences == (
        "scripted[0] POST /api/v1/namespaces/d/configmaps\n    status: expected 500, got 201",
    )
    assert report.lines()[1:] == ["watch   7 of 7", "create  6 of 7", "ssa     7 of 7", "passed 20 of 21"]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "is empty"),
        (b"{oops\n", "line 1 is not JSON"),
        (b"[1]\n", "line 1 is not a JSON object but list"),
        (b'{"a": 1}\n', "unknown vectors format, keys a;"),
        (b"\x1f\x8bxx", "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
    ],
)
def test_a_file_of_no_use_is_refused_with_its_name_and_fault(tmp_path, content, fault):
    path = tmp_path / "v.jsonl"
    path.write_bytes(content)
    with pytest.raises(replay.VectorsError) as caught:
        replay.replay(path)
    assert fault in str(caught.value)
    assert str(path) in str(caught.value)


def test_the_scenario_under_test_is_not_changed_by_a_replay():
    recorded = scenario()
    before = deepcopy(recorded)
    failures(recorded)
    assert recorded == before


@pytest.mark.parametrize("wrong", [{"subset": 5}, {"ignore": 7}, {"path": None}])
def test_malformed_step_is_named(tmp_path, wrong):
    step = {"method": "GET", "path": "/api", "expect": {"status": 200, "body": {"kind": "APIVersions"}}}
    path = tmp_path / "vectors.jsonl"
    path.write_text(json.dumps({"scenario": "s-1", "category": "c", "steps": [step | wrong]}) + "\n")
    with pytest.raises(replay.VectorsError, match=r"vectors\.jsonl: s-1\[0\] is malformed: "):
        replay.replay(path)
