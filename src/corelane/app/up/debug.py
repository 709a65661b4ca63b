"""The debug endpoint of the scheduler of `corelane up`, on a loopback port of its own, with a token."""

from __future__ import annotations

import json
import secrets

from aiohttp import web

from corelane.app.explain.recorded import FILE
from corelane.app.up.datadir import DataDir
from corelane.kernel import files
from corelane.scheduler.explain import endpoint
from corelane.scheduler.explain.ring import DecisionRing


class DebugEndpoint:
    """Serves what the ring records; `corelane explain` finds address and token beside the kubeconfig."""

    def __init__(self, ring: DecisionRing, directory: DataDir) -> None:
        self._token = secrets.token_urlsafe(32)
        self._file = directory.root / FILE
        app = web.Application()
        app.add_routes(endpoint.routes(ring, self._token))
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)

    async def start(self) -> None:
        """Listen, and write the file."""
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        text = json.dumps({"url": url, "token": self._token})
        files.write_atomic(self._file, text.encode(), mode=0o600)

    async def stop(self) -> None:
        self._file.unlink(missing_ok=True)
        await self._runner.cleanup()
