"""The agent beside a kubelet under faults: each is shown with its remedy; running pods stay as they are."""

import asyncio
import errno
import threading

import pytest

from corelane.cpuset import CPUSet
from corelane.kube.kubelet import KubeletAccess
from support.certificates import Authority
from support.clocks import SkewedClocks
from support.cluster_lab import events
from support.node_lab import in_lab, source, with_lab

KEPT = 1.5
"""Seconds for which containers are watched to stay as they are: more than five periods."""


async def running(lab, name, cpu=""):
    """A pod that the kubelet and the API server have, and its running container's id."""
    return lab.run_known(await lab.known(name, cpu), cpu)


async def pinned(lab, agent, count):
    await lab.until(lambda: agent.status()["containers"] == {"confirmed": count})


async def stays(lab, *idents):
    """Nothing of these containers changes for several periods."""
    before = [lab.cpus(ident) for ident in idents]
    async with asyncio.timeout(KEPT * 20):
        for _ in range(15):
            await asyncio.sleep(KEPT / 15)
            assert [lab.cpus(ident) for ident in idents] == before


async def published(lab, name, reason):
    """The message of an event, once it is there."""
    async with asyncio.timeout(120):
        while True:
            for why, text in await events(lab.client, name):
                if why == reason:
                    return text
            await asyncio.sleep(0.05)


# -- cgroup files

FILE_FAULTS = [
    (errno.EINVAL, "EINVAL: some of these CPUs"),
    (errno.EBUSY, "EBUSY: a group below still uses CPUs"),
    (errno.ENOSPC, "ENOSPC: the group has processes and would be left without a CPU"),
    (errno.EMFILE, "EMFILE: this process has too many open files; raise its limit (LimitNOFILE"),
    (errno.EROFS, "EROFS: the cgroup file system is mounted read-only; mount it read-write"),
]


@pytest.mark.parametrize(
    ("code", "text"), FILE_FAULTS, ids=[errno.errorcode[code] for code, _ in FILE_FAULTS]
)
@in_lab()
async def test_a_cgroup_file_that_refuses_cpus_is_shown_and_repaired_later(lab, code, text):
    async with lab.working() as agent:
        other = await running(lab, "other", "2")
        await pinned(lab, agent, 1)
        lab.node.groups.refusals["write", "server-1/cpuset.cpus"] = code
        server = await running(lab, "server", "2")
        (failing,) = await lab.until(lambda: agent.status()["notPinned"])
        assert (failing["pod"], failing["container"]) == ("default/server", "app")
        assert text in failing["message"]
        assert f"{lab.node.group(server)}/cpuset.cpus" in failing["message"]
        assert text in await published(lab, "server", "PinFailed")
        assert agent.status()["containers"]["confirmed"] == 1
        own = lab.cpus(other)
        lab.drift(other, "0-7")
        await lab.until_cpus(other, str(own))
        lab.node.groups.refusals.clear()
        await pinned(lab, agent, 2)
        assert agent.status()["notPinned"] == []
        assert len(lab.cpus(server)) == 2
        assert lab.cpus(other) == own


@in_lab()
async def test_a_cgroup_that_cannot_be_read_delays_no_repair_of_others(lab):
    one, two = lab.run("one", "2"), lab.run("two", "2")
    async with lab.working() as agent:
        await pinned(lab, agent, 2)
        own = lab.cpus(one), lab.cpus(two)
        lab.node.groups.refusals["read", f"{one}/cpuset.cpus.effective"] = errno.EMFILE
        state = await lab.until(lambda: (s := source(agent, "cgroups"))["state"] == "failing" and s)
        assert f"{one}/cpuset.cpus.effective: EMFILE" in state["error"]
        await lab.until(lambda: source(agent, "cgroups")["retries"] > 8)  # no growing pause
        lab.drift(two, "0-7")
        await lab.until_cpus(two, str(own[1]))
        lab.node.groups.refusals.clear()
        await lab.until(lambda: source(agent, "cgroups")["state"] == "ok")
        assert (lab.cpus(one), lab.cpus(two)) == own


@in_lab()
async def test_a_cgroup_that_vanishes_while_it_is_written_is_the_containers_end(lab):
    async with lab.working() as agent:
        other = lab.run("other", "2")
        await pinned(lab, agent, 1)
        lab.node.groups.refusals["write", "server-1/cpuset.cpus"] = errno.ENODEV
        server = lab.run("server", "2")
        await lab.until(lambda: len(agent.runs()) == 2)
        lab.kubelet.pods = lab.kubelet.pods[:1]
        lab.node.remove(server)
        lab.node.announce(server, 3)
        await lab.until(lambda: len(agent.runs()) == len(agent.ledger.entries) == 1)
        await stays(lab, other)


# -- the runtime


def test_a_slow_runtime_is_shown_and_cpus_are_applied_by_files_meanwhile(tmp_path, monkeypatch):
    monkeypatch.setattr("support.node_lab.CALL_SECONDS", 0.5)

    async def scene(lab):
        slow = threading.Event()
        answer = lab.node.update

        def update(*request):
            slow.wait(60)
            return answer(*request)

        lab.node.update = update
        async with lab.working() as agent:
            server = lab.run("server", "2")
            await lab.until(lambda: len(lab.cpus(server)) == 2)
            own = lab.cpus(server)
            lab.drift(server, "0-7")
            await lab.until_cpus(server, str(own))
            lab.node.hung.add("Version")
            state = await lab.until(lambda: (s := source(agent, "containers"))["state"] == "failing" and s)
            assert "no answer within 0.5 s; check that" in state["error"]
            lab.drift(server, "0-7")
            await lab.until_cpus(server, str(own))
            slow.set()
            lab.node.hung.clear()
            await lab.until(lambda: source(agent, "containers")["state"] == "ok")
            await lab.until(lambda: not agent.connections.runtime.unrecorded)
            assert {ident for ident, _ in lab.node.updates} == {server}

    with_lab(tmp_path, scene)


# -- the kubelet


@pytest.mark.parametrize("path", ["/pods", "/configz"])
@pytest.mark.parametrize("body", [b"", b"<html>", b'{"items": 3, "kubeletconfig": 3}', b"\xff\xfe"])
@in_lab()
async def test_garbage_from_the_kubelet_is_shown_and_its_last_answer_stays_in_effect(lab, path, body):
    server = lab.run("server", "2")
    async with lab.working() as agent:
        await pinned(lab, agent, 1)
        lab.kubelet.bodies[path] = body
        name = {"/pods": "kubelet pods", "/configz": "kubelet configuration"}[path]
        state = await lab.until(lambda: (s := source(agent, name))["state"] == "failing" and s)
        assert f"{lab.kubelet.url}: GET {path}: answer invalid" in state["error"]
        await stays(lab, server)
        assert agent.mode.name == "owner"
        lab.kubelet.bodies.clear()
        await lab.until(lambda: source(agent, name)["state"] == "ok")


@in_lab()
async def test_a_kubelet_certificate_of_another_authority_is_shown_with_the_remedy(lab, tmp_path):
    trusted = lab.access
    server = lab.run("server", "2")
    async with lab.working() as agent:
        await pinned(lab, agent, 1)
    other = Authority.make().write(tmp_path / "other.pem")
    lab.access = KubeletAccess(trusted.url, ca_file=other, token="token")
    async with lab.working() as agent:
        state = await lab.until(lambda: (s := source(agent, "kubelet pods"))["state"] == "failing" and s)
        assert "certificate not trusted" in state["error"]
        assert "kubelet.caFile" in state["error"]
        assert agent.mode.name == "read-only"
        await stays(lab, server)
        assert agent.ledger.entries["uid-server", "app"].exclusive


# -- the API server


class SkewedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be advanced, with that of the agent."""

    def __init__(self):
        super().__init__()
        self._clocks = SkewedClocks()

    def time(self):
        return super().time() + (self._clocks.skew if hasattr(self, "_clocks") else 0.0)

    @property
    def clocks(self):
        return self._clocks

    async def advance(self, seconds):
        """Pass time in steps of a minute, in each of which everything that is due runs."""
        for _ in range(int(seconds // 60)):
            self._clocks.skew += 60.0
            self._clocks.monotonic_skew += 60.0
            for _ in range(10):
                await asyncio.sleep(0.003)


@in_lab(seconds=None, loop=SkewedLoop)
async def test_an_hour_without_the_api_server_loses_no_pods_last_state(lab):
    loop = asyncio.get_running_loop()
    kept = await running(lab, "kept", "1")
    async with lab.working(clocks=loop.clocks) as agent:
        await pinned(lab, agent, 1)
        await lab.until_condition("kept", "True")
        known = [await lab.known(f"late-{number}", "1") for number in range(3)]
        await lab.stop_api()
        await loop.advance(1800)
        late = [lab.run_known(made, "1") for made in known]
        await pinned(lab, agent, 4)
        await loop.advance(1800)
        own = lab.cpus(kept)
        lab.drift(kept, "0-7")
        await lab.until_cpus(kept, str(own))
        state = await lab.until(lambda: (s := source(agent, "Node"))["state"] == "failing" and s)
        assert f"API server {lab.server.url}: GET /api/v1/nodes: no whole answer" in state["error"]
        assert "check that it runs and is reachable" in state["error"]
        queue = next(one for one in agent.status()["writes"] if one["name"] == "pods")
        assert (queue["state"], queue["failures"]) == ("failing", 0)
        await lab.start_api()
        for _ in range(3):  # past every pause
            await loop.advance(60)
            await asyncio.sleep(0.5)
        await lab.until(lambda: source(agent, "Node")["state"] == "ok")
        for number in range(3):
            await lab.until_condition(f"late-{number}", "True")
        assert len({str(lab.cpus(ident)) for ident in (kept, *late)}) == 4


# -- the clock


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
@in_lab()
async def test_a_wall_clock_that_jumps_an_hour_delays_no_repair(lab, jump):
    server = await running(lab, "server", "2")
    clocks = SkewedClocks()
    async with lab.working(clocks=clocks) as agent:
        await pinned(lab, agent, 1)
        own = str(lab.cpus(server))
        clocks.skew = jump
        for _ in range(3):
            lab.drift(server, "0-7")
            await lab.until_cpus(server, own)
        other = await running(lab, "other", "2")
        await pinned(lab, agent, 2)
        await lab.until_condition("other", "True")
        lab.kubelet.faults = {"/pods": 500}
        await lab.until(lambda: source(agent, "kubelet pods")["state"] == "failing")
        lab.kubelet.faults = {}
        await lab.until(lambda: source(agent, "kubelet pods")["state"] == "ok")
        await stays(lab, server, other)


# -- the machine


@in_lab()
async def test_a_pod_whose_exclusive_cpu_goes_off_line_goes_on_with_the_rest_and_is_told(lab):
    server = await running(lab, "server", "2")
    noise = lab.run("noise")
    async with lab.working() as agent:
        await pinned(lab, agent, 2)
        own = lab.cpus(server)
        lost = max(own)
        lab.set_online(str(CPUSet(range(8)) - CPUSet((lost,))))
        await lab.until_cpus(server, str(own - CPUSet((lost,))))
        text = await published(lab, "server", "CPUsLost")
        assert str(lost) in text
        lab.set_online("0-7")
        await lab.until_cpus(server, str(own))
        await lab.until_cpus(noise, "0-7")


# -- saved settings


@pytest.mark.parametrize(
    ("content", "text"),
    [("{", "invalid settings file"), ('{"policy":"","labels":{},"annotations":{},"version":2}', "version 2")],
)
@in_lab()
async def test_damaged_or_newer_settings_are_shown_and_pins_go_on(lab, content, text):
    path = lab.path / "state" / "settings.json"
    path.parent.mkdir()
    path.write_text(content)
    server = lab.run("server", "2")
    async with lab.working() as agent:
        assert text in agent.status()["settingsFault"]
        await pinned(lab, agent, 1)
        assert text in await published(lab, "here", "InvalidSetting")
        if "version" in content:
            assert path.read_text() == content
            assert text in agent.status()["settingsFault"]
        else:
            await lab.until(lambda: agent.status()["settingsFault"] == "")
        assert len(lab.cpus(server)) == 2


# -- all at once


def test_sources_that_fail_all_at_once_delay_no_repair_and_are_each_shown(tmp_path, monkeypatch):
    monkeypatch.setattr("support.node_lab.CALL_SECONDS", 0.5)

    async def scene(lab):
        server = await running(lab, "server", "2")
        async with lab.working() as agent:
            await pinned(lab, agent, 1)
            own = str(lab.cpus(server))
            lab.kubelet.faults = {"/pods": 500, "/configz": 403}
            lab.node.hung.add("Version")
            await lab.stop_api()
            failing = {"kubelet pods", "kubelet configuration", "containers", "Node"}
            await lab.until(lambda: all(source(agent, name)["state"] == "failing" for name in failing))
            for _ in range(3):
                lab.drift(server, "0-7")
                await lab.until_cpus(server, own)
            assert source(agent, "cgroups")["state"] == "ok"
            lab.kubelet.faults = {}
            lab.node.hung.clear()
            await lab.start_api()
            await lab.until(lambda: all(s["state"] == "ok" for s in agent.status()["sources"]), 90)

    with_lab(tmp_path, scene)
