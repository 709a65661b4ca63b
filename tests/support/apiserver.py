"""A client for tests of the embedded API server: plain requests, and watches as lists of events."""

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from corelane.embedded.apiserver.http.auth import User
from corelane.embedded.apiserver.http.server import APIServer

ADMIN = "admintoken"
VIEWER = "viewtoken"
TOKENS = {ADMIN: User("admin", ("system:masters",)), VIEWER: User("viewer")}

NAMESPACES = "/api/v1/namespaces"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
MERGE = {"Content-Type": "application/merge-patch+json"}


@dataclass
class Answer:
    status: int
    body: Any
    headers: Any


class Api:
    """Requests to one server, as administrator unless `token` says otherwise."""

    def __init__(self, server: APIServer, session: aiohttp.ClientSession) -> None:
        self.server, self.session = server, session

    async def __call__(self, method, path, body=None, *, token=ADMIN, data=None, headers=None) -> Answer:
        sent = {"Authorization": f"Bearer {token}"} if token else {}
        if body is not None:
            data = json.dumps(body)
            sent["Content-Type"] = "application/json"
        sent.update(headers or {})
        url = self.server.url + path
        async with self.session.request(method, url, data=data, headers=sent) as response:
            text = await response.text()
        is_json = response.content_type == "application/json" and text
        return Answer(response.status, json.loads(text) if is_json else text, response.headers)

    async def get(self, path, **more):
        return await self("GET", path, **more)

    async def made(self, path, body):
        answer = await self("POST", path, body)
        assert answer.status == 201, answer.body
        return answer.body

    @asynccontextmanager
    async def watching(self, path, **parameters):
        query = "&".join(f"{name}={value}" for name, value in {"watch": 1, **parameters}.items())
        url = f"{self.server.url}{path}?{query}"
        headers = {"Authorization": f"Bearer {ADMIN}"}
        async with self.session.get(url, headers=headers) as response:
            assert response.status == 200, await response.text()
            yield Stream(response)


class Stream:
    """The events of one watch."""

    def __init__(self, response) -> None:
        self.response = response

    async def next(self, timeout=120.0):
        line = await asyncio.wait_for(self.response.content.readline(), timeout)
        return json.loads(line) if line else None

    async def take(self, count):
        return [await self.next() for _ in range(count)]

    async def seen(self, count):
        """Type and name of the next events."""
        return [(e["type"], e["object"]["metadata"].get("name")) for e in await self.take(count)]


@asynccontextmanager
async def serving(**settings):
    server = APIServer(tokens=TOKENS, **settings)
    await server.start()
    try:
        async with aiohttp.ClientSession() as session:
            yield Api(server, session)
    finally:
        await server.stop()


def config_map(name="c", **more):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **more}


def pod(name="p", **spec):
    container = {"name": "c", "image": "img:1"}
    body = {"containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": body}
