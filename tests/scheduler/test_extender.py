"""The extender against the embedded API server, over real sockets, as kube-scheduler asks it."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st

from corelane.app.scheduler import SchedulerOptions, extender_tls, extender_token
from corelane.cpuset import CPUSet
from corelane.kube import translate
from corelane.kube.client import KubeClient
from corelane.kube.pod import Pod
from corelane.reasons import Code, Reason
from corelane.scheduler import profiles
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.daemon import extender_server as served
from corelane.scheduler.daemon.extender_server import BindingOutcomes, ExtenderServer
from corelane.scheduler.daemon.scheduler import Scheduler
from corelane.scheduler.extender import beside_kube_scheduler
from corelane.scheduler.framework import configuration
from corelane.scheduler.framework.plugin import Cycle, Rejection, Scope, Wait
from corelane.scheduler.plugins import default
from corelane.settings import SettingsError
from support import scheduled_cluster
from support.certificates import Authority
from support.core_lab import profile_with
from support.scheduled_cluster import ScheduledCluster, assert_no_cpu_twice

NOT_LEADING = "this replica does not lead, or has not listed the cluster"
KUBES = {"schedulerName": "default-scheduler"}


class Asked:
    """A cluster, its scheduler, and kube-scheduler's side of the protocol."""

    def __init__(self, url: str, cluster: ScheduledCluster) -> None:
        self.url, self.cluster, self.scheduler = url, cluster, cluster.scheduler

    async def post(self, verb: str, body: Any, status: int = 200) -> Any:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.post(f"{self.url}/{verb}", data=data) as got,
        ):
            text = await got.read()
            assert got.status == status, text
            return json.loads(text)

    async def pod(self, name: str, cpu: str = "2") -> dict[str, Any]:
        await self.cluster.pod(name, cpu, **KUBES)
        path = f"/api/v1/namespaces/default/pods/{name}"
        return json.loads(await self.cluster.client.raw("GET", path))

    async def filter(self, pod: dict[str, Any], *names: str) -> dict[str, Any]:
        return await self.post("filter", {"Pod": pod, "Nodes": None, "NodeNames": list(names)})

    async def bind(self, pod: dict[str, Any], node: str) -> str:
        meta = pod["metadata"]
        args = {"PodName": meta["name"], "PodNamespace": "default", "PodUID": meta["uid"], "Node": node}
        return (await self.post("bind", args))["Error"]

    async def bound(self, count: int) -> list[Pod]:
        return await self.cluster.all_bound(count)


@dataclass
class Gate:
    """A third party's Reserve and Permit."""

    name: str = "Gate"
    answer: Rejection | Wait | None = None
    reserved: set[str] = field(default_factory=set)

    def reserve(self, cycle: Cycle, node: NodeInfo) -> Rejection | None:
        self.reserved.add(cycle.pod.pod.metadata.name)
        return None

    def unreserve(self, pod: PodInfo, node: str) -> None:
        self.reserved.discard(pod.pod.metadata.name)

    def permit(self, cycle: Cycle, node: NodeInfo) -> Rejection | Wait | None:
        return self.answer


@dataclass
class Leader:
    scheduler: Scheduler | None


@asynccontextmanager
async def running(*plugins: Any) -> AsyncIterator[Asked]:
    outcomes = BindingOutcomes()
    settings = {"profile": profile_with(*plugins, name="corelane-scheduler"), "decisions": outcomes}
    async with scheduled_cluster.running(identity="me", **settings) as cluster:
        core = cluster.scheduler.core
        extender = ExtenderServer(Leader(cluster.scheduler), cluster.client, outcomes)
        port = await extender.start("127.0.0.1", 0)
        while not cluster.scheduler.synced:
            await asyncio.sleep(0.01)
        for name, cpus in (("n1", 4), ("n2", 8)):
            await cluster.node(name, f"core:{cpus}", cpus, policy="pools")
        while not all((node := core.cluster.get(name)) and node.ledger for name in ("n1", "n2")):
            await asyncio.sleep(0.01)
        try:
            yield Asked(f"http://127.0.0.1:{port}", cluster)
        finally:
            await extender.stop()


@pytest.fixture
def asked() -> AbstractAsyncContextManager[Asked]:
    return running()


async def test_filter_keeps_the_nodes_with_the_cpus_and_claims_nothing(asked: Asked) -> None:
    pod = await asked.pod("a", "4")
    for _ in range(3):
        found = await asked.filter(pod, "n1", "n2", "other")
        assert found["NodeNames"] == ["n2"]
        assert "4 CPUs requested, 3 free" in found["FailedNodes"]["n1"]
        assert list(found["FailedAndUnresolvableNodes"]) == ["other"]
        assert found["Nodes"] is None
    assert asked.scheduler.core.cluster.node_of(pod["metadata"]["uid"]) is None
    items = [{"metadata": {"name": name, "labels": {"x": "y"}}, "spec": {}} for name in ("n1", "n2")]
    found = await asked.post("filter", {"pod": pod, "nodes": {"items": items}, "nodeNames": None})
    assert (found["Nodes"]["items"], found["NodeNames"]) == (items[1:], None)
    pod["metadata"]["creationTimestamp"] = pod["metadata"]["labels"] = pod["spec"]["nodeSelector"] = None
    assert (await asked.filter(pod, "n1", "n2"))["NodeNames"] == ["n2"], "null counts as absent"
    pod["metadata"]["annotations"] = {"scheduling.koordinator.sh/resource-spec": "nonsense"}
    found = await asked.filter(pod, "n1", "n2")
    assert found["NodeNames"] == []
    assert "resource-spec" in found["FailedAndUnresolvableNodes"]["n1"]


async def test_priorities_are_whole_numbers_from_0_to_10_and_bound_pods_have_their_cpus_recorded(
    asked: Asked,
) -> None:
    pod = await asked.pod("a", "3")
    found = await asked.post("prioritize", {"Pod": pod, "NodeNames": ["n1", "n2", "other"]})
    scores = {one["Host"]: one["Score"] for one in found}
    assert scores["other"] == 0
    assert 0 < scores["n2"] <= scores["n1"] <= 10  # n1 would be full
    assert await asked.bind(pod, "n1") == ""
    (bound,) = await asked.bound(1)
    assert bound.spec.node_name == "n1"
    assert translate.request(bound).proposal == {"main": CPUSet([1, 2, 3])}


async def test_bind_reserves_and_binds_with_the_cpus(asked: Asked) -> None:
    pods = [await asked.pod(f"p{number}") for number in range(3)]
    assert [await asked.bind(pod, "n2") for pod in pods] == ["", "", ""]
    bound = await asked.bound(3)
    assert assert_no_cpu_twice(bound) == 6
    assert not asked.scheduler.core.queue.counts().get("active", 0)
    assert await asked.bind(pods[0], "n2") == ""  # asked again, as after a lost answer


async def test_bind_of_a_pod_that_no_longer_fits_says_why_and_leaves_nothing(asked: Asked) -> None:
    first, second = await asked.pod("a"), await asked.pod("b")
    assert await asked.bind(first, "n1") == ""
    error = await asked.bind(second, "n1")
    assert error.startswith("pod default/b: no longer fits on node n1: not enough cpus available")
    assert asked.scheduler.core.cluster.node_of(second["metadata"]["uid"]) is None
    assert await asked.bind(second, "n2") == ""


async def test_a_pod_that_is_gone_or_another_is_not_bound(asked: Asked) -> None:
    pod = await asked.pod("a")
    other = {"metadata": {**pod["metadata"], "uid": "other"}}
    assert "UID other requested" in await asked.bind(other, "n1")
    await asked.cluster.client.delete(Pod, "a", namespace="default", grace_seconds=0)
    assert "cannot be read" in await asked.bind(pod, "n1")
    assert asked.scheduler.core.cluster.node_of(pod["metadata"]["uid"]) is None


async def test_what_kube_scheduler_binds_itself_is_counted(asked: Asked) -> None:
    pod = await asked.pod("a")
    assert (await asked.filter(pod, "n1"))["NodeNames"] == ["n1"]
    meta = pod["metadata"]
    await asked.cluster.client.bind("default", "a", meta["uid"], "n1", {})
    while asked.scheduler.core.cluster.node_of(meta["uid"]) is None:
        await asyncio.sleep(0.02)
    assert "n1" in (await asked.filter(await asked.pod("b"), "n1"))["FailedNodes"]


async def test_preempt_keeps_the_nodes_where_the_victims_have_what_is_missing(asked: Asked) -> None:
    one, two, three = await asked.pod("one", "3"), await asked.pod("two", "4"), await asked.pod("three", "3")
    for pod, node in ((one, "n1"), (two, "n2"), (three, "n2")):
        assert await asked.bind(pod, node) == ""
    new = await asked.pod("new", "4")
    uids = {name: [{"UID": pod["metadata"]["uid"]}] for name, pod in (("n1", one), ("n2", two))}
    meta = {name: {"Pods": pods, "NumPDBViolations": 1} for name, pods in uids.items()}
    found = await asked.post("preempt", {"Pod": new, "NodeNameToMetaVictims": meta})
    assert found == {"NodeNameToMetaVictims": {"n2": meta["n2"]}}
    whole = {"n2": {"Pods": [two], "NumPDBViolations": 0}}
    found = await asked.post("preempt", {"Pod": new, "NodeNameToVictims": whole})
    assert list(found["NodeNameToMetaVictims"]) == ["n2"]


async def test_malformed_bodies_are_one_clear_error(asked: Asked) -> None:
    for verb, body, what in (
        ("filter", b"", "body"),
        ("filter", b"[]", "body"),
        ("filter", b'{"NodeNames": []}', "Pod: missing"),
        ("filter", b'{"Pod": {"metadata": {}}, "NodeNames": []}', "name or uid"),
        ("filter", b'{"Pod": {"metadata": {"name": "a", "uid": "b"}}}', "nodeCacheCapable"),
        ("prioritize", b'{"Pod": 1, "NodeNames": []}', "Pod"),
        ("bind", b'{"PodName": "a"}', "PodNamespace"),
        ("bind", b'{"PodName": 1}', "PodName"),
        (
            "preempt",
            b'{"Pod": {"metadata": {"name": "a", "uid": "b"}}, "NodeNameToVictims": {"n": 1}}',
            "n:",
        ),
    ):
        answer = await asked.post(verb, body, 400)
        assert what in answer["Error"], (verb, answer)


async def test_a_body_that_is_too_large_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "LARGEST_BODY", 1 << 20)

    async with running() as asked:
        answer = await asked.post("filter", b" " * (2 << 20), 413)
        assert "nodeCacheCapable" in answer["Error"]


async def test_a_replica_that_does_not_lead_answers_so() -> None:
    client = KubeClient.connect_to("http://127.0.0.1:1")
    extender = ExtenderServer(Leader(None), client, BindingOutcomes())
    port = await extender.start("127.0.0.1", 0)
    url = f"http://127.0.0.1:{port}/filter"
    async with aiohttp.ClientSession() as session, session.post(url, json={}) as got:
        assert got.status == 503
        assert "does not lead" in (await got.json())["Error"]
    await extender.stop()
    await client.close()


MEMBERS = [
    "Pod",
    "pod",
    "NodeNames",
    "Nodes",
    "metadata",
    "name",
    "uid",
    "items",
    "PodUID",
    "Node",
    "PodName",
    "PodNamespace",
    "Pods",
    "UID",
]
MEMBERS += ["NodeNameToVictims"]


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda s: st.lists(s, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), s, max_size=4),
        max_leaves=6,
    )
)
def test_any_body_is_read_or_refused(value: object) -> None:
    body = msgspec.json.encode(value)
    for read in (served.nodes_args, served.bind_args, served.preempt_args):
        with suppress(served.ExtenderError):
            read(body)


async def test_permit_plugins_deny_hold_and_allow_what_kube_scheduler_binds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate(answer=Rejection.of("Gate", Reason(Code.POD_INVALID, ("no quorum",))))
    monkeypatch.setattr(served, "_BIND_SECONDS", 0.5)

    async with running(gate) as asked:
        pod, core = await asked.pod("a"), asked.scheduler.core
        uid = pod["metadata"]["uid"]
        assert (await asked.bind(pod, "n2")).startswith("pod default/a: Gate: ")
        assert (gate.reserved, core.cluster.node_of(uid), core.pending()) == (set(), None, {})
        gate.answer = Wait(300)
        held = "pod default/a: held by Permit plugins Gate, for node n2; its CPUs stay claimed"
        assert await asked.bind(pod, "n2") == held
        assert (await asked.filter(pod, "n1", "n2"))["NodeNames"] == ["n2"]
        waiting = asyncio.create_task(asked.bind(pod, "n2"))
        await asyncio.sleep(0.1)
        asked.scheduler.decide_permit(uid, "Gate", allowed=False, message="quorum lost")
        assert await waiting == "pod default/a: Gate: quorum lost"
        assert (gate.reserved, core.cluster.node_of(uid), core.pending()) == (set(), None, {})
        waiting = asyncio.create_task(asked.bind(pod, "n2"))
        while "a" not in gate.reserved:
            await asyncio.sleep(0.01)
        asked.scheduler.decide_permit(uid, "Gate", allowed=True)
        assert await waiting == ""
        assert assert_no_cpu_twice(await asked.bound(1)) == 2


def test_over_tls_only_clients_of_the_authority_are_answered(tmp_path: Path) -> None:
    """Server certificate and client CA, as kube-scheduler's tlsConfig has them; real HTTP on loopback."""
    ours, other = Authority.make("ours"), Authority.make("other")
    ca = ours.write(tmp_path / "ca.crt")
    serving = ours.issue(tmp_path / "serving.pem", "extender", "127.0.0.1")
    options = SchedulerOptions(tls_cert_file=serving, tls_private_key_file=serving, client_ca_file=ca)
    body = {"PodName": "a", "PodNamespace": "default", "PodUID": "u", "Node": "n1"}

    def client(certificate: Path | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(ca))
        if certificate:
            context.load_cert_chain(certificate)
        return context

    async def main() -> None:
        extender = ExtenderServer(
            Leader(None), KubeClient.connect_to("http://127.0.0.1:1"), BindingOutcomes()
        )
        port = await extender.start("127.0.0.1", 0, extender_tls(options))
        url = f"https://127.0.0.1:{port}/bind"
        try:
            async with asyncio.timeout(120), aiohttp.ClientSession() as session:
                known = client(ours.issue(tmp_path / "known.pem", "kube-scheduler"))
                async with session.post(url, json=body, ssl=known) as got:
                    assert (got.status, await got.json()) == (503, {"Error": NOT_LEADING})
                for unknown in (None, other.issue(tmp_path / "unknown.pem", "kube-scheduler")):
                    with pytest.raises(aiohttp.ClientError):
                        await session.post(url, json=body, ssl=client(unknown))
                with pytest.raises(aiohttp.ClientConnectorCertificateError):
                    await session.post(url, json=body, ssl=ssl.create_default_context())
        finally:
            await extender.stop()

    asyncio.run(main())


def test_files_for_tls_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    pair = Authority.make().issue(tmp_path / "pair.pem", "extender")
    (tmp_path / "empty").touch()
    with pytest.raises(SettingsError, match=r"--client-ca-file .*empty: cannot be used: .*PEM certificates"):
        extender_tls(SchedulerOptions(
            tls_cert_file=pair, tls_private_key_file=pair, client_ca_file=tmp_path / "empty"
        ))  # fmt: skip
    with pytest.raises(SettingsError, match="--client-ca-file: needs --tls-cert-file"):
        extender_tls(SchedulerOptions(client_ca_file=pair))


@dataclass
class Broken:
    """A third party's plugin that fails at what it is asked."""

    fails: bool = True
    answer: Any = "high"
    name = "Broken"
    scope = Scope.CLUSTER

    def filter(self, cycle: Cycle, node: NodeInfo) -> Rejection | None:
        if self.fails:
            raise KeyError("rack")
        return None

    def score(self, cycle: Cycle, node: NodeInfo) -> Any:
        return self.answer


async def test_a_plugin_that_fails_is_named_in_the_answer() -> None:
    plugin = Broken()

    async with running(plugin) as asked:
        pod = await asked.pod("a")
        why = "plugin Broken failed: KeyError: 'rack'"
        assert (await asked.filter(pod, "n1"))["Error"].startswith(why)
        assert why in await asked.bind(pod, "n1")
        plugin.fails = False
        answer = await asked.post("prioritize", {"Pod": pod, "Nodes": None, "NodeNames": ["n1"]}, 500)
        assert answer["Error"] == "plugin Broken failed: score answered 'high'; use a finite number"
        assert answer["Error"] in await asked.bind(pod, "n1")
        plugin.answer = 1
        assert await asked.bind(pod, "n1") == ""


def test_kube_schedulers_own_plugins_are_left_to_it_in_a_profile_of_a_file_too() -> None:
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    (of_file,) = configuration.parse(head, "s.yaml", profiles.offer({})).profiles
    for profile in (of_file, default.profile()):
        beside = beside_kube_scheduler(profile)
        names = {plugin.name for plugin in (*beside.filters, *beside.reserves, *beside.pre_filters)}
        assert not names & {"TaintToleration", "NodeVolumeLimits", "VolumeBinding", "NodeResourcesFit"}
        assert "CPUPlacement" in names


def request(**headers: str) -> web.Request:
    given = {"Host": "127.0.0.1:10262", "Content-Type": "application/json", **headers}
    return make_mocked_request(
        "POST", "/bind", headers={name.replace("_", "-"): v for name, v in given.items()}
    )


BASIC = base64.b64encode(b"corelane:0123456789abcdef").decode()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, None),
        ({"Content_Type": "application/json; charset=utf-8", "Host": "[::1]:1"}, None),
        ({"Host": "localhost"}, None),
        ({"Content_Type": "text/plain"}, 415),
        ({"Content_Type": "application/x-www-form-urlencoded"}, 415),
        ({"Origin": "http://127.0.0.1:10262"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "evil.example:10262"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": ""}, 403),
    ],
)
def test_the_extender_refuses_what_a_web_page_can_send(headers, status):
    assert (served.Gate(on_loopback=True).refusal(request(**headers)) or (None,))[0] == status


@pytest.mark.parametrize(
    ("authorization", "accepted"),
    [
        ("Bearer 0123456789abcdef", True),
        (f"Basic {BASIC}", True),
        ("Bearer 0123456789abcde", False),
        ("Bearer", False),
        ("", False),
        ("Basic !!!", False),
        ("Basic /////w==", False),
    ],
)
def test_the_extender_asks_for_its_token(authorization, accepted):
    gate = served.Gate(on_loopback=False, token="0123456789abcdef")
    refusal = gate.refusal(request(Authorization=authorization))
    assert (refusal is None) == accepted
    assert accepted or refusal[0] == 401


def test_the_extender_accepts_any_host_beyond_loopback():
    assert served.Gate(on_loopback=False).refusal(request(Host="corelane.kube-system.svc")) is None


def test_a_token_file_that_others_can_read_or_without_a_token_is_refused(tmp_path: Path):
    path = tmp_path / "token"
    options = SchedulerOptions(extender_token_file=path)
    with pytest.raises(SettingsError, match="No such file"):
        extender_token(options)
    path.write_text("0123456789abcdef\n")
    path.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 0600"):
        extender_token(options)
    path.chmod(0o600)
    assert extender_token(options) == "0123456789abcdef"
    for content in (b"", b"short", b"two words of a token", b"\xff" * 20, b"x" * 300):
        path.write_bytes(content)
        with pytest.raises(SettingsError, match="not a token"):
            extender_token(options)
