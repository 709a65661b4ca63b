"""The Node's registration and heartbeat: whatever goes wrong with one write, the next is made."""

import asyncio
from pathlib import Path

import pytest

from corelane.agent.publication.write_queue import PublicationReporter
from corelane.embedded.pods import registration
from corelane.embedded.pods.node_status import NodeIdentity
from corelane.embedded.pods.registration import Heartbeat
from corelane.kube.client import APIError
from corelane.machine.spec import parse_spec
from corelane.node.ledger import new
from corelane.runtime.base import Capabilities

IDENTITY = NodeIdentity("n", Capabilities(on_this_machine=False), "simulated", "simulated")


class Client:
    """Fails with the given errors in turn, then answers."""

    def __init__(self, *errors):
        self.errors, self.calls = list(errors), []

    async def _answer(self, what):
        self.calls.append(what)
        if self.errors:
            raise self.errors.pop(0)
        return {"metadata": {"uid": "u", "labels": {}, "annotations": {}}}

    async def create(self, whole):
        return await self._answer(f"create {whole['kind']}")

    async def patch(self, kind, name, body, **options):
        return await self._answer(f"patch {kind.api.kind}")


class Reporter(PublicationReporter):
    def __init__(self):
        self.failed, self.unexpected = [], []

    def api_failed(self, what, error):
        self.failed.append(what)

    def malfunction(self, what, error):
        self.unexpected.append(what)


def heartbeat(client, reporter):
    ledger = new(parse_spec("socket:1 core:2 smt:1"))
    return Heartbeat(client, IDENTITY, reporter, lambda: 0.0, lambda: ledger, lambda *_: None, lambda: None)


@pytest.fixture(autouse=True)
def _fast(monkeypatch):
    monkeypatch.setattr(registration, "_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(registration, "RENEW_SECONDS", 0.01)


def test_registration_is_retried_after_any_error():
    client, reporter = Client(TypeError("bug"), APIError(403, "Forbidden", "x"), KeyError("uid")), Reporter()
    asyncio.run(asyncio.wait_for(heartbeat(client, reporter).register(), 120))
    assert reporter.unexpected == ["registering the node"] * 2
    assert reporter.failed == ["registering the node"]


async def test_the_lease_is_renewed_after_any_error():
    client, reporter = Client(TypeError("bug"), APIError(401, "Unauthorized", "x")), Reporter()
    task = asyncio.create_task(heartbeat(client, reporter).run())
    while client.calls.count("patch Lease") < 4:
        await asyncio.sleep(0.01)
        assert not task.done()
    task.cancel()
    assert reporter.unexpected[0] == reporter.failed[0] == "renewing the node's lease"


def test_no_file_of_the_room_reads_the_wall_clock_for_a_delay():
    room = Path(registration.__file__).parent
    for file in room.glob("*.py"):
        assert "time.time" not in file.read_text(), file
