"""A real kube-apiserver as the oracle of the embedded one: wiped between scenarios, answers recorded."""

from __future__ import annotations

import asyncio
import base64
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from conformance import api_replay

_WIPED = re.compile(
    r"/registry/(pods|configmaps|events|minions|topology\.node\.k8s\.io|secrets|poddisruptionbudgets"
    r"|persistentvolumes|persistentvolumeclaims|storageclasses)/"
    r"|/registry/namespaces/(?!(default|kube-system|kube-public|kube-node-lease)$)"
    r"|/registry/priorityclasses/(?!system-)"
    r"|/registry/leases/(?!kube-system/apiserver-)"
)
_KEPT = re.compile(r"/registry/configmaps/kube-system/")
_START, _END = (base64.b64encode(key).decode() for key in (b"/registry/", b"/registry0"))


@dataclass
class RealApi:
    """A server that knows the tokens of the vectors, and the etcd behind it."""

    url: str
    etcd: str
    session: aiohttp.ClientSession

    async def record(self, scenario: dict[str, Any]) -> dict[str, Any]:
        """The scenario with this server's answers, on an emptied store."""
        await self.wipe()
        return dict(await api_replay.record_scenario(scenario, self.url, self.session))

    async def install(self, definition: dict[str, Any]) -> None:
        """Create a CustomResourceDefinition if need be, and wait until it is served."""
        headers = {"Authorization": "Bearer admintoken"}
        path = f"{self.url}/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        async with self.session.post(path, json=definition, headers=headers) as response:
            assert response.status in {201, 409}, await response.text()
        spec = definition["spec"]
        for version in spec["versions"]:
            for _ in range(200):
                found = f"{self.url}/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}"
                async with self.session.get(found, headers=headers) as response:
                    if response.status == 200:
                        break
                await asyncio.sleep(0.1)
            else:
                raise AssertionError(f"{found} is not served")

    async def wipe(self) -> None:
        """Remove what scenarios create: the store is then as the embedded server's is at its start."""
        for key in await self._keys():
            if _WIPED.match(key) and not _KEPT.match(key):
                body = {"key": base64.b64encode(key.encode()).decode()}
                async with self.session.post(f"{self.etcd}/v3/kv/deleterange", json=body) as response:
                    assert response.status == 200

    async def _keys(self) -> set[str]:
        body = {"key": _START, "range_end": _END, "keys_only": True}
        async with self.session.post(f"{self.etcd}/v3/kv/range", json=body) as response:
            found = await response.json()
        return {base64.b64decode(one["key"]).decode() for one in found.get("kvs", ())}


@asynccontextmanager
async def connected(url: str, authority: Path, etcd: str) -> AsyncIterator[RealApi]:
    trust = ssl.create_default_context(cafile=authority)
    timeout = aiohttp.ClientTimeout(total=None)
    connector = aiohttp.TCPConnector(ssl=trust)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        yield RealApi(url, etcd, session)
