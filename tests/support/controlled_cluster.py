"""The embedded API server with its controller."""

import asyncio
from contextlib import asynccontextmanager

from corelane.embedded.housekeeping import Controller, ControllerReporter
from support.cluster_lab import cluster

PATIENCE = 180


class Heard(ControllerReporter):
    def __init__(self):
        self.failures = []

    def api_failed(self, what, error):
        self.failures.append((what, error))


@asynccontextmanager
async def controlled(directory):
    heard = Heard()
    async with cluster(directory) as client:
        task = asyncio.create_task(Controller(client, reporter=heard).run())
        try:
            yield client
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    assert heard.failures == []
