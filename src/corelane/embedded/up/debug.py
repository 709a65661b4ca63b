"""The debug endpoint of the scheduler of `corelane up`, on a loopback port of its own, with a token."""

from __future__ import annotations

import json
import secrets

from aiohttp import web

from corelane import structured_log
from corelane.app.explain.recorded import FILE
from corelane.embedded.up.datadir import DataDir
from corelane.kernel import files
from corelane.kube.http_listener import HTTPListener
from corelane.scheduler.daemon import http
from corelane.scheduler.explain.record import DecisionRing

_log = structured_log.get_logger("corelane.up")


class DebugEndpoint:
    """Serves what the ring records; `corelane explain` finds address and token beside the kubeconfig."""

    def __init__(self, ring: DecisionRing, directory: DataDir) -> None:
        self._token = secrets.token_urlsafe(32)
        self._file = directory.root / FILE
        app = web.Application()
        app.add_routes(http.routes(ring, self._token))
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        self._listener: HTTPListener | None = None

    async def start(self) -> None:
        """Listen, and write the file."""
        await self._runner.setup()
        assert self._runner.server is not None
        self._listener = HTTPListener("scheduler's decisions", self._runner.server, _log)
        host, port = await self._listener.start("127.0.0.1", 0)
        url = f"http://{host}:{port}"
        text = json.dumps({"url": url, "token": self._token})
        files.write_atomic(self._file, text.encode(), mode=0o600)

    async def stop(self) -> None:
        self._file.unlink(missing_ok=True)
        if self._listener:
            self._listener.stop()
        await self._runner.cleanup()
