"""Replays recorded requests to a Kubernetes API server against the embedded one and compares the answers.

Each scenario gets a fresh server in memory on a free port. The recorded `wait`s, which let a real server's
caches catch up, are skipped: ours has none.
"""

import asyncio
import itertools
import json
import operator
import re
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import aiohttp
import yaml
from yarl import URL

from conformance.api_compare import Answer, Normaliser, compare

Scenario = Mapping[str, Any]
Step = Mapping[str, Any]
OpenServer = Callable[[], AbstractAsyncContextManager[str]]

ANSWER_TIMEOUT = 10.0
EVENTS_TIMEOUT = 3.0
QUIET = 0.3
AT_ONCE = 4
_KEPT_HEADERS = ("allow", "location", "retry-after", "www-authenticate")
_UNSENT = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
_DEFAULT_HEADERS = {
    "Authorization": "Bearer admintoken",
    "Accept": "application/json",
    "User-Agent": "vectors/1",
}
_RELATIONS = {"<=": operator.le, "==": operator.eq, "!=": operator.ne, "<": operator.lt}
_CAPTURED = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one step: no `differences` means that it passed."""

    category: str
    where: str
    differences: tuple[str, ...]


class UnknownCaptureError(Exception):
    """A step needs a value that an earlier, failed step should have captured."""


@dataclass(slots=True)
class _Run:
    """One scenario under way: what it captured, what each object last showed, how answers are normalised."""

    scenario: Scenario
    url: str
    session: aiohttp.ClientSession
    normalise: Normaliser
    captured: dict[str, Any] = field(default_factory=dict)
    shown: dict[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)


@asynccontextmanager
async def embedded_server() -> AsyncIterator[str]:
    """A fresh embedded API server set up as the recorded one was; yields its URL."""
    from corelane.embedded.apiserver.http.auth import User
    from corelane.embedded.apiserver.http.server import APIServer

    tokens = {"admintoken": User("admin", ("system:masters",)), "viewtoken": User("viewer")}
    server = APIServer(tokens=tokens, default_scheduler="default-scheduler")
    await server.start()
    try:
        yield server.url
    finally:
        await server.stop()


class MalformedStepError(ValueError):
    """A step of a scenario lacks a member, or has one of another type; the message names it."""


async def replay_scenarios(
    scenarios: list[Scenario], open_server: OpenServer = embedded_server
) -> list[Outcome]:
    """Every step's outcome, in the order of the file; a few scenarios run at once."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(scenario: Scenario) -> list[Outcome]:
        async with gate:
            return await replay_scenario(scenario, open_server)

    return [outcome for found in await asyncio.gather(*map(one, scenarios)) for outcome in found]


async def replay_scenario(scenario: Scenario, open_server: OpenServer = embedded_server) -> list[Outcome]:
    """The outcomes of one scenario's steps against a fresh server."""
    timeout = aiohttp.ClientTimeout(total=None)
    normalise = Normaliser(managed_fields=scenario["category"] == "ssa")
    async with open_server() as url, aiohttp.ClientSession(timeout=timeout) as session:
        run = _Run(scenario, url, session, normalise)
        for number, step in enumerate(scenario["steps"]):
            try:
                await _step(run, str(number), step)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                why = f"{type(error).__name__}: {error}"
                raise MalformedStepError(f"{scenario['scenario']}[{number}] is malformed: {why}") from error
    return run.outcomes


async def _step(run: _Run, number: str, step: Step) -> None:
    what = f"WATCH {step['watch']}" if "watch" in step else f"{step['method']} {step['path']}"
    try:
        if "watch" in step:
            found = await _watch(run, number, step)
        else:
            found = await _request(run, step)
    except UnknownCaptureError as error:
        found = [str(error)]
    except (aiohttp.ClientError, TimeoutError) as error:
        found = [f"no answer: {type(error).__name__} {error}".rstrip()]
    where = f"{run.scenario['scenario']}[{number}] {what}"
    run.outcomes.append(Outcome(run.scenario["category"], where, tuple(found)))


async def _request(run: _Run, step: Step) -> list[str]:
    body = _fill(step.get("body"), run.captured)
    run.normalise.learn(body)
    url = URL(run.url + _fill_path(step["path"], run.captured), encoded=True)
    async with asyncio.timeout(ANSWER_TIMEOUT):
        async with _send(run.session, step["method"], url, step, body) as response:
            actual = await _answer(response)
    run.normalise.learn(actual["body"])
    _add_checks(run, actual)
    return [*compare(step, actual, run.normalise), *_captures(run, step, actual), *_assertions(run, step)]


def _send(session: aiohttp.ClientSession, method: str, url: URL, step: Step, body: Any) -> Any:
    data = None if body is None else _encoded(body)
    headers = dict(_DEFAULT_HEADERS)
    if data is not None:
        headers["Content-Type"] = "application/json"
    headers = {k: v for k, v in (headers | step.get("headers", {})).items() if v is not None}
    return session.request(
        method, url, headers=headers, data=data, skip_auto_headers=_UNSENT, allow_redirects=False
    )


def _encoded(body: Any) -> bytes:
    text = body["text"] if isinstance(body, dict) and body.keys() == {"text"} else json.dumps(body)
    return text.encode()


async def _answer(response: aiohttp.ClientResponse) -> Answer:
    content_type = response.headers.get("Content-Type", "")
    return _head(response) | {"body": _decoded(content_type, await response.read())}


def _head(response: aiohttp.ClientResponse) -> Answer:
    """Status and headers; what was not sent is left out, as in the recording."""
    headers = {k: response.headers[k] for k in _KEPT_HEADERS if k in response.headers}
    warnings = response.headers.getall("Warning", [])
    head = {"status": response.status, "contentType": response.headers.get("Content-Type", "")}
    return head | ({"headers": headers} if headers else {}) | ({"warnings": warnings} if warnings else {})


def _decoded(content_type: str, raw: bytes) -> Any:
    if content_type.startswith("application/vnd.kubernetes.protobuf"):
        return {"text": "<binary>"}
    text = raw.decode("utf-8", "replace")
    try:
        if content_type.startswith("application/yaml"):
            return {"yaml": yaml.load(text, yaml.BaseLoader)}
        if content_type.startswith("application/json"):
            return json.loads(text)
    except (ValueError, yaml.YAMLError):
        pass
    return {"text": text}


def _add_checks(run: _Run, actual: Answer) -> None:
    """Relate the answered object's version and uid to those it last showed."""
    body = actual["body"]
    metadata = body.get("metadata") if isinstance(body, dict) else None
    if not isinstance(metadata, dict) or not metadata.get("name") or "resourceVersion" not in metadata:
        return
    key = (str(body.get("kind")), metadata["name"])
    before = run.shown.get(key)
    run.shown[key] = metadata
    if before is not None:
        actual["checks"] = {
            "rv": _movement(before["resourceVersion"], metadata["resourceVersion"]),
            "uid": "same" if before.get("uid") == metadata.get("uid") else "different",
        }


def _movement(before: object, now: object) -> str:
    if before == now:
        return "unchanged"
    numbers = [str(before), str(now)]
    if not all(map(str.isdigit, numbers)):
        return f"not numbers: {numbers}"
    return "increased" if int(numbers[0]) < int(numbers[1]) else "decreased"


def _captures(run: _Run, step: Step, actual: Answer) -> list[str]:
    missing = []
    for name, path in step.get("capture", {}).items():
        value = actual["body"]
        for part in path.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value is None:
            missing.append(f"capture {name}: the answer has no {path}")
        else:
            run.captured[name] = value
    return missing


def _assertions(run: _Run, step: Step) -> list[str]:
    return [text for text in step.get("assert", ()) if not _holds(text, run.captured)]


def _holds(assertion: str, captured: Mapping[str, Any]) -> bool:
    left, relation, right = re.split(r"(<=|==|!=|<)", assertion)
    values = [captured.get(left, ""), captured.get(right, "")]
    if all(str(value).isdigit() for value in values):
        values = [int(value) for value in values]
    return bool(_RELATIONS[relation](*values))


def _fill(value: Any, captured: Mapping[str, Any]) -> Any:
    """`value` with every `${name}` replaced by what was captured under that name."""
    if isinstance(value, dict):
        return {k: _fill(v, captured) for k, v in value.items()}
    if isinstance(value, list):
        return [_fill(v, captured) for v in value]
    return _CAPTURED.sub(lambda m: _value(captured, m[1]), value) if isinstance(value, str) else value


def _fill_path(path: str, captured: Mapping[str, Any]) -> str:
    return _CAPTURED.sub(lambda m: quote(_value(captured, m[1]), safe=""), path)


def _value(captured: Mapping[str, Any], name: str) -> str:
    if name not in captured:
        raise UnknownCaptureError(f"needs ${{{name}}}, which an earlier step did not give")
    return str(captured[name])


async def _watch(run: _Run, number: str, step: Step) -> list[str]:
    path = f"{_fill_path(step['watch'], run.captured)}{'&' if '?' in step['watch'] else '?'}watch=1"
    since = None
    if "from" in step:
        since = _fill(step["from"], run.captured)
        path += f"&resourceVersion={quote(since, safe='')}"
    url = URL(run.url + path, encoded=True)
    async with _send(run.session, "GET", url, step, None) as response:
        if response.status != 200:
            actual = await _answer(response)
        else:
            actual = await _events(run, number, step, response)
    run.normalise.learn(actual)
    if "checks" in step["expect"] and "events" in actual:
        actual["checks"] = {"rv": _order(actual["events"], since or "0")}
    return compare(step, actual, run.normalise)


async def _events(run: _Run, number: str, step: Step, response: aiohttp.ClientResponse) -> Answer:
    """Run the steps of `during` with the watch open, then take the events that the step asks for."""
    queue: asyncio.Queue[Any] = asyncio.Queue()
    reader = asyncio.create_task(_read_events(response, queue))
    try:
        for i, during in enumerate(step.get("during", ())):
            await _step(run, f"{number}.{i}", during)
        events = await (_until_end(queue) if step["take"] == "end" else _take(queue, step["take"]))
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
    return _head(response) | {"events": events}


async def _read_events(response: aiohttp.ClientResponse, queue: asyncio.Queue[Any]) -> None:
    """Put each event into `queue`, and None once the stream has ended."""
    rest = b""
    try:
        async for chunk in response.content.iter_any():
            *lines, rest = (rest + chunk).split(b"\n")
            for event in map(json.loads, lines):
                if not _skipped(event):
                    queue.put_nowait(event)
    finally:
        queue.put_nowait(None)


def _skipped(event: Mapping[str, Any]) -> bool:
    """Bookmarks come when the server likes, except the one that ends the initial events."""
    if event.get("type") != "BOOKMARK":
        return False
    annotations = event["object"].get("metadata", {}).get("annotations") or {}
    return "k8s.io/initial-events-end" not in annotations


async def _take(queue: asyncio.Queue[Any], count: int) -> list[Any]:
    """The first `count` events, and whatever else comes before a quiet moment."""
    events: list[Any] = []
    await _collect(queue, events, count, EVENTS_TIMEOUT)
    if len(events) == count:
        await _collect(queue, events, sys.maxsize, QUIET)
    return events


async def _until_end(queue: asyncio.Queue[Any]) -> list[Any]:
    events: list[Any] = []
    if not await _collect(queue, events, sys.maxsize, ANSWER_TIMEOUT):
        events.append("the server did not end the watch")
    return events


async def _collect(queue: asyncio.Queue[Any], events: list[Any], count: int, seconds: float) -> bool:
    """Move events from the queue until there are `count`, or time is up; true if the stream ended."""
    try:
        async with asyncio.timeout(seconds):
            while len(events) < count:
                event = await queue.get()
                if event is None:
                    queue.put_nowait(None)
                    return True
                events.append(event)
    except TimeoutError:
        pass
    return False


def _order(events: list[Any], since: str) -> str:
    """`increasing` when the events' resourceVersions rise strictly from above `since`."""
    versions = [since, *(_event_version(event) for event in events)]
    numbers = [int(version) if version.isdigit() else -1 for version in versions]
    rising = all(a < b for a, b in itertools.pairwise(numbers))
    return "increasing" if rising else f"not increasing: {versions}"


def _event_version(event: Any) -> str:
    try:
        return str(event["object"]["metadata"]["resourceVersion"])
    except (KeyError, TypeError):
        return ""
