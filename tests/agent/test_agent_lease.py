"""The Lease of the agent beside a kubelet: renewed while it runs, given up at its end; one agent acts."""

import asyncio
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import pytest

from corelane.agent import agent_lease
from corelane.agent.source import AnotherAgentActs
from corelane.kernel import proc
from corelane.kube import keys, translate
from corelane.kube.client import APIError
from corelane.kube.objects import Lease, Node, NodeResourceTopology
from corelane.runtime.nri.acting_lock import node_locks
from corelane.supervise import innermost
from support.node_lab import in_lab, source


async def lease_of(lab):
    return await lab.client.get(Lease, "here", keys.AGENT_NAMESPACE)


async def until_renewed(lab):
    """Wait until this process has the Lease, and renews it once more."""
    before = ""
    async with asyncio.timeout(60):
        while True:
            with suppress(APIError):
                spec = (await lease_of(lab)).spec
                if spec.holder_identity == agent_lease.own_identity():
                    if before not in ("", spec.renew_time):
                        return
                    before = spec.renew_time
            await asyncio.sleep(0.05)


async def until_announced(lab, leased):
    """Wait until the published ledger says that a Lease is renewed, or that none is."""
    async with asyncio.timeout(30):
        while True:
            try:
                topology = await lab.client.get(NodeResourceTopology, "here")
            except APIError as error:
                assert error.code == 404
            else:
                if translate.is_leased(topology) is leased:
                    return
            await asyncio.sleep(0.05)


@in_lab()
async def test_the_lease_is_renewed_then_announced_and_given_up_at_the_end(lab, monkeypatch):
    monkeypatch.setattr(agent_lease, "RENEW_SECONDS", 0.2)

    async with lab.working():
        await until_announced(lab, leased=True)
        first = await lease_of(lab)
        node = await lab.client.get(Node, "here")
        assert [(one.kind, one.uid) for one in first.metadata.owner_references] == [
            ("Node", node.metadata.uid)
        ]
        assert first.spec.holder_identity == agent_lease.own_identity()
        assert first.spec.lease_duration_seconds == agent_lease.DURATION_SECONDS
        await until_renewed(lab)
    ended = await lease_of(lab)
    assert ended.spec.holder_identity == ""


@in_lab()
async def test_a_lease_that_was_deleted_or_changed_by_no_living_process_is_written_again(lab, monkeypatch):
    monkeypatch.setattr(agent_lease, "RENEW_SECONDS", 0.2)

    async with lab.working():
        await until_renewed(lab)
        spec = {"holderIdentity": "host_1_0_not-this-boot"}
        await lab.client.patch(Lease, "here", {"spec": spec}, namespace=keys.AGENT_NAMESPACE)
        await until_renewed(lab)
        await lab.client.delete(Lease, "here", namespace=keys.AGENT_NAMESPACE)
        await until_renewed(lab)


@in_lab()
async def test_an_api_server_that_is_away_for_longer_than_the_lease_lasts_ends_no_agent(lab, monkeypatch):
    monkeypatch.setattr(agent_lease, "RENEW_SECONDS", 0.05)
    monkeypatch.setattr(agent_lease, "_LONGEST_PAUSE", 0.05)
    async with lab.working() as agent:
        await until_renewed(lab)
        await lab.stop_api()
        await lab.until(lambda: source(agent, "lease")["retries"] > 20)
        server = lab.run("server", "2")
        await lab.until(lambda: len(lab.cpus(server)) == 2)
        await lab.start_api()
        await until_renewed(lab)


@in_lab()
async def test_an_agent_that_may_not_read_leases_pins_containers_all_the_same(lab, monkeypatch):
    async def forbidden(*_args, **_how):
        raise APIError(403, "Forbidden", "leases is forbidden")

    async with lab.working() as agent:
        monkeypatch.setattr(agent.lease, "_client", Mock(get=forbidden, patch=forbidden, create=forbidden))
        await lab.until(lambda: source(agent, "lease")["state"] == "failing")
        server = lab.run("server", "2")
        await lab.until(lambda: len(lab.cpus(server)) == 2)
        await until_announced(lab, leased=False)


class LossyClient:
    """Carries out what it is asked for, and then raises `fault`, or never answers where that is None."""

    def __init__(self, client, fault=None):
        self.client, self.fault, self.lost = client, fault, asyncio.Event()

    async def get(self, *asked):
        return await self.client.get(*asked)

    async def patch(self, *asked, **how):
        await self.client.patch(*asked, **how)
        self.lost.set()
        if self.fault is not None:
            raise self.fault
        await asyncio.Event().wait()


@in_lab()
async def test_a_renewal_whose_answer_was_lost_is_followed_by_the_next_one(lab, monkeypatch):
    monkeypatch.setattr(agent_lease, "RENEW_SECONDS", 0.2)
    async with lab.working() as agent:
        await until_renewed(lab)
        lossy = LossyClient(lab.client, APIError(0, "", "connection reset"))
        monkeypatch.setattr(agent.lease, "_client", lossy)
        await asyncio.wait_for(lossy.lost.wait(), 30)
        await lab.until(lambda: source(agent, "lease")["state"] == "failing")
        monkeypatch.setattr(agent.lease, "_client", lab.client)
        await until_renewed(lab)


@in_lab()
async def test_a_lease_is_given_up_although_a_renewal_is_under_way(lab, monkeypatch):
    monkeypatch.setattr(agent_lease, "RENEW_SECONDS", 0.2)
    async with lab.working() as agent:
        await until_renewed(lab)
        lossy = LossyClient(lab.client)
        monkeypatch.setattr(agent.lease, "_client", lossy)
        await asyncio.wait_for(lossy.lost.wait(), 30)
        lossy.fault = APIError(0, "", "connection reset")
    assert (await lease_of(lab)).spec.holder_identity == ""


@in_lab()
async def test_a_lease_that_cannot_be_written_is_a_problem_and_not_announced(lab, monkeypatch):
    monkeypatch.setattr(keys, "AGENT_NAMESPACE", "not-there")
    async with lab.working() as agent:
        await until_announced(lab, leased=False)
        await lab.until(lambda: source(agent, "lease")["state"] == "failing")
        assert keys.AGENT_NAMESPACE in source(agent, "lease")["error"]
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": keys.AGENT_NAMESPACE}}
        await lab.client.create(namespace)
        await until_announced(lab, leased=True)


def sleeper():
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


def identity(process):
    """What an agent in that process calls itself."""
    return f"elsewhere_{process.pid}_{proc.identity(process.pid).start_ticks}_{proc.boot_id()}"


def lease_held_by(holder):
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 60}
    metadata = {"name": "here", "namespace": keys.AGENT_NAMESPACE}
    return {"apiVersion": Lease.api.api_version, "kind": "Lease", "metadata": metadata, "spec": spec}


@in_lab()
async def test_an_agent_waits_while_the_process_that_holds_the_lease_lives_on_this_machine(lab):
    other = sleeper()
    await lab.client.create(lease_held_by(identity(other)))
    agent = lab.agent()
    running = asyncio.create_task(agent.run())
    await lab.until(lambda: any(f"process {other.pid} holds Lease" in one for one in lab.reporter.lines))
    assert agent.mode is None
    other.communicate(b"\n")
    await lab.until(lambda: agent.mode and agent.mode.name == "owner")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await agent.close()


@in_lab()
async def test_an_agent_waits_for_the_living_holder_also_once_the_api_server_is_away(lab, monkeypatch):
    monkeypatch.setattr(agent_lease, "_POLL_SECONDS", 0.1)
    looks, living_process = [], agent_lease.living_process
    monkeypatch.setattr(
        agent_lease, "living_process", lambda holder: looks.append(holder) or living_process(holder)
    )
    other = sleeper()
    await lab.client.create(lease_held_by(identity(other)))
    agent = lab.agent()
    running = asyncio.create_task(agent.run())
    await lab.until(lambda: any(f"process {other.pid} holds Lease" in one for one in lab.reporter.lines))
    await lab.stop_api()
    looks.clear()
    await lab.until(lambda: len(looks) > 5)
    assert agent.mode is None
    other.communicate(b"\n")
    await lab.until(lambda: agent.mode and agent.mode.name == "owner")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await lab.start_api()
    await agent.close()


@in_lab()
async def test_an_agent_ends_once_another_process_of_this_machine_has_taken_its_lease(lab, monkeypatch):
    monkeypatch.setattr(agent_lease, "RENEW_SECONDS", 0.2)
    other, server = sleeper(), lab.run("server", "2")
    agent = lab.agent()
    running = asyncio.create_task(agent.run())
    await until_announced(lab, leased=True)
    await lab.until(lambda: len(lab.cpus(server)) == 2)
    own, spec = lab.cpus(server), {"holderIdentity": identity(other)}
    await lab.client.patch(Lease, "here", {"spec": spec}, namespace=keys.AGENT_NAMESPACE)
    (failure,) = await asyncio.gather(running, return_exceptions=True)
    await agent.close()
    assert f"process {other.pid} holds Lease" in str(innermost(failure))
    assert not agent.lease.held
    assert lab.cpus(server) == own
    assert (await lease_of(lab)).spec.holder_identity == spec["holderIdentity"]
    other.communicate(b"\n")


@in_lab()
async def test_an_agent_that_could_not_ask_at_its_start_ends_and_leaves_the_lease_to_its_holder(
    lab, monkeypatch
):
    monkeypatch.setattr(agent_lease, "_ASK_SECONDS", 0.0)
    other = sleeper()
    holder = identity(other)
    await lab.client.create(lease_held_by(holder))
    agent = lab.agent()
    (failure,) = await asyncio.gather(agent.run(), return_exceptions=True)
    await agent.close()
    assert isinstance(innermost(failure), AnotherAgentActs)
    assert (await lease_of(lab)).spec.holder_identity == holder
    other.communicate(b"\n")


@pytest.mark.parametrize(
    "holder",
    [
        "",
        "x",
        "a_1_2_3",
        "host_1_0_not-this-boot",
        f"host_{os.getpid()}_0_{proc.boot_id()}",
        "_" * 4000,
        f"host_\u00b2_1_{proc.boot_id()}",
        f"host_{'9' * 5000}_1_{proc.boot_id()}",
        f"host_1_{'9' * 5000}_{proc.boot_id()}",
    ],
    ids=["none", "one word", "words", "another boot", "another start", "long", "power", "pid", "ticks"],
)
def test_a_holder_that_is_no_living_process_of_this_machine_holds_nobody_up(holder):
    assert agent_lease.living_process(holder) == ""


@in_lab()
async def test_a_second_agent_with_another_state_directory_waits_and_names_the_first(lab):
    run = lab.path / "run"
    run.mkdir(mode=0o700)
    endpoint = f"unix://{run}/containerd.sock"
    async with lab.working(endpoint=endpoint) as first:
        await lab.until(lambda: first.mode and first.mode.name == "owner")
        second = lab.agent(endpoint=endpoint, state_dir=lab.path / "other")
        waiting = asyncio.create_task(second.run())
        await lab.until(lambda: any("is locked by" in line for line in lab.reporter.lines))
        assert second.mode is None
        first.node_locks.release()  # as the kernel does when the process ends
        await lab.until(lambda: second.mode and second.mode.name == "owner")
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await second.close()


def locks(directory: Path, note: str = ""):
    return node_locks([directory / "containerd.sock"], note)


def test_agents_that_have_the_directory_writable_and_read_only_exclude_each_other(tmp_path):
    tmp_path.chmod(0o700)
    first, second = locks(tmp_path, "state directory /a"), locks(tmp_path)
    assert first.try_acquire() == ""
    assert second.try_acquire().endswith(f"is locked by process {os.getpid()} (state directory /a)")
    read_only = locks(tmp_path)
    read_only._locks = read_only._locks[1:]  # what is left where no file can be made
    assert read_only.try_acquire() == f"{tmp_path} is locked by another process"
    first.release()
    assert read_only.try_acquire() == ""
    assert first.try_acquire() == f"{tmp_path} is locked by another process"


def test_where_others_could_lock_the_directory_the_file_alone_is_locked(tmp_path):
    tmp_path.chmod(0o755)
    first, second = locks(tmp_path, "state directory /a"), locks(tmp_path)
    assert first.try_acquire() == ""
    assert first.paths == (tmp_path / "corelane-agent.lock",)
    assert first.paths[0].stat().st_mode & 0o777 == 0o600
    assert second.try_acquire().endswith(f"is locked by process {os.getpid()} (state directory /a)")


def test_a_directory_that_others_may_write_is_not_trusted(tmp_path):
    tmp_path.chmod(0o777)
    assert locks(tmp_path).try_acquire() == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_directory_of_another_user_is_not_trusted(tmp_path):
    os.chown(tmp_path, 65534, 65534)
    assert locks(tmp_path).paths == ()
    assert locks(tmp_path).try_acquire() == ""
    assert not list(tmp_path.iterdir())
