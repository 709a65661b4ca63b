"""`corelane explain pod`: the record or today's state, the node's facts, and what is printed."""

import asyncio
import dataclasses
import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import web
from click.testing import CliRunner
from msgspec.structs import replace
from rich.console import Console

from corelane import node as nodes
from corelane.app import explain
from corelane.app.explain import PodQuery
from corelane.cli import main
from corelane.cpuset import CPUSet
from corelane.fleet import recorded_decisions
from corelane.fleet.cluster import ClusterObjects
from corelane.fleet.recorded_decisions import Endpoint, NoScheduler
from corelane.kube import keys, translate
from corelane.kube.meta import Condition, ObjectMeta
from corelane.kube.objects import Lease, LeaseSpec, Taint
from corelane.kube.pod import Pod, PodStatus, SchedulingGate
from corelane.node.explain.pod_decision import ContainerCPUs, PodDecision, Source, Verdict
from corelane.scheduler.daemon import http
from corelane.scheduler.explain.record import DecisionRing
from corelane.scheduler.plugins import default
from corelane.view import explain as view
from support import objects
from support.pods import guaranteed

NOW = datetime(2026, 11, 28, 12, 0, 0, tzinfo=UTC)
PROFILES = (default.profile(),)
STATE = objects.state("core:4", "n1", reserved=CPUSet([0]), policy="pools")


def cluster(*pods: Pod, state: object = STATE) -> ClusterObjects:
    known = [objects.node("n1", 4), objects.node("n2", 4, taints=(Taint("gpu", "yes", "NoSchedule"),))]
    published = (objects.topology("n1", state),)  # type: ignore[arg-type]
    return ClusterObjects(NOW, tuple(known), published, pods)


def asked(name: str = "a", cpus: str = "2", scheduler: str = "corelane-scheduler", **more: object) -> Pod:
    one = guaranteed(name, cpus, **more)  # type: ignore[arg-type]
    return replace(one, spec=replace(one.spec, scheduler_name=scheduler))


def explained(pod: Pod, *records: PodDecision, others: tuple[Pod, ...] = ()) -> PodDecision:
    query = PodQuery(pod.metadata.name, "ns")
    return explain._explained(query, list(records), cluster(pod, *others), PROFILES)


def record(pod: Pod, **more: object) -> PodDecision:
    meta = pod.metadata
    values = {"verdict": Verdict.UNSCHEDULABLE, "message": "0/2", **more}
    return PodDecision(
        meta.namespace,
        meta.name,
        meta.uid,
        Source.RECORDED,
        "2026-11-23T12:03:04Z",
        **values,  # type: ignore[arg-type]
    )


def printed(found: PodDecision, width: int = 80) -> str:
    out = io.StringIO()
    view.show(found, Console(file=out, width=width, highlight=False, soft_wrap=False))
    assert max(map(len, out.getvalue().splitlines())) <= width
    return out.getvalue()


def test_a_pending_pod_of_the_record_gets_what_would_help_today() -> None:
    pod = asked(cpus="4")
    found = explained(pod, record(pod, nodes=2, attempt=3))
    assert found.source is Source.RECORDED
    assert found.nearest is not None
    assert "n1" in found.nearest.name
    text = printed(found)
    assert text.startswith(
        "pod ns/a: pending, fits on none of 2 nodes\ndecision of 12:03:04 (UTC, 2026-11-23)"
    )
    assert "attempt 3" in text
    assert "request 3 CPUs instead of 4" in text


def test_without_a_record_the_decision_is_taken_again_and_the_output_says_so() -> None:
    found = explained(asked(cpus="4"))
    assert found.source is Source.RECOMPUTED
    text = printed(found)
    assert "recomputed on today's state" in text
    assert "node(s) had untolerated taint(s)" in text


def test_a_bound_pod_whose_node_chose_other_cpus_shows_both() -> None:
    pod = asked()
    state, _ = nodes.admit(STATE, translate.request(pod))
    bound = replace(pod, spec=replace(pod.spec, node_name="n1"))
    proposal = ContainerCPUs("main", CPUSet([2, 3]), why="because")
    old = record(pod, verdict=Verdict.BOUND, node="n1", containers=(proposal,))
    found = explain._explained(PodQuery("a", "ns"), [old], cluster(bound, state=state), PROFILES)
    (container,) = found.containers
    assert (container.proposed, container.actual) == (CPUSet([2, 3]), CPUSet([1, 2]))
    assert "CPUs 2-3 were proposed by the scheduler, and the node allocated 1-2" in " ".join(
        printed(found).split()
    )


@pytest.mark.parametrize("holder", ["agent", ""])
def test_the_condition_of_a_pod_is_as_old_as_its_agents_last_sign_of_life(holder: str) -> None:
    pod = asked()
    pinned = Condition(keys.PINNED, "True", reason="Confirmed")
    bound = replace(pod, spec=replace(pod.spec, node_name="n1"), status=PodStatus(conditions=(pinned,)))
    meta = ObjectMeta(name="n1", namespace=keys.AGENT_NAMESPACE)
    lease = Lease(metadata=meta, spec=LeaseSpec(holder, 60, renew_time=NOW.isoformat()))
    leased = (objects.topology("n1", STATE, leased=True),)
    there = dataclasses.replace(cluster(bound), topologies=leased, leases=(lease,))
    found = explain._explained(PodQuery("a", "ns"), [], there, PROFILES)
    told = "condition corelane.io/Pinned=True is as old as the agent's last sign of life"
    assert (told in found.notes) == (not holder)


def test_a_bound_pod_without_a_record_shows_the_nodes_facts_alone() -> None:
    pod = asked()
    state, _ = nodes.admit(STATE, translate.request(pod))
    bound = replace(pod, spec=replace(pod.spec, node_name="n1"))
    found = explain._explained(PodQuery("a", "ns"), [], cluster(bound, state=state), PROFILES)
    assert (found.verdict, found.node) == (Verdict.BOUND, "n1")
    assert found.containers[0].proposed == CPUSet()
    assert found.containers[0].actual == CPUSet([1, 2])


def test_a_pod_of_another_scheduler_is_explained_and_named_as_such() -> None:
    found = explained(asked(scheduler="default-scheduler"))
    assert "default-scheduler" in found.notes[-1]


def test_a_pod_that_is_gone_is_explained_by_its_record() -> None:
    pod = asked("gone")
    found = explain._explained(
        PodQuery("gone", "ns"), [record(pod, verdict=Verdict.ENDED)], cluster(), PROFILES
    )
    assert found.verdict is Verdict.ENDED


def test_a_record_of_an_earlier_pod_of_that_name_is_only_noted() -> None:
    pod = asked()
    earlier = record(replace(pod, metadata=replace(pod.metadata, uid="earlier")))
    found = explained(pod, earlier)
    assert found.uid == pod.metadata.uid
    assert "earlier" in found.notes[-1]


def test_a_pod_that_does_not_exist_is_one_clear_message() -> None:
    with pytest.raises(explain.NoSuchPod, match=r"pod ns/b: not found.*names that begin so: bee"):
        explain._explained(PodQuery("b", "ns"), [], cluster(asked("bee")), PROFILES)
    with pytest.raises(explain.NoSuchPod, match="are in namespace ns: give -n ns"):
        explain._explained(PodQuery("bee", "default"), [], cluster(asked("bee")), PROFILES)


def test_a_gated_pod_is_not_tried() -> None:
    found = explained(asked(scheduling_gates=(SchedulingGate("example.com/quota"),)))
    assert found.verdict is Verdict.NOT_TRIED
    assert "example.com/quota" in printed(found)


def test_a_pod_on_a_cluster_without_nodes_is_pending_for_that() -> None:
    found = explain._explained(PodQuery("a", "ns"), [], ClusterObjects(NOW, pods=(asked(),)), PROFILES)
    assert "pending: the cluster has no nodes" in printed(found)


def pending_on(node: str, priority: int = 10) -> Pod:
    one = asked(cpus="4", priority=priority)
    return replace(one, status=replace(one.status, nominated_node_name=node))


def terminating(name: str, priority: int = 0) -> Pod:
    one = asked(name, "1", node="n1", priority=priority)
    return replace(one, metadata=replace(one.metadata, deletion_timestamp="2026-11-23T12:03:04Z"))


def test_a_preempting_pod_waits_for_the_pods_that_terminate_on_its_node() -> None:
    pod, victims = pending_on("n1"), (terminating("v1"), terminating("v2"), terminating("other", 10))
    for records in ([], [record(pod)]):
        found = explained(pod, *records, others=victims)
        text = " ".join(printed(found).split())
        assert "pending, nominated for node n1: waits until ns/v1, ns/v2 have terminated" in text
        assert found.nearest is None
    text = " ".join(printed(explained(pod)).split())
    assert "waits until that node has released the resources of evicted pods" in text
    assert "nominated" not in printed(explained(pending_on("gone")))


def test_a_deleted_pod_is_shown_with_what_became_of_it() -> None:
    pending, bound = asked("a"), asked("b")
    gone = [
        record(pending, verdict=Verdict.ENDED, nodes=2),
        record(bound, verdict=Verdict.ENDED, node="n1"),
    ]
    texts = [printed(one).splitlines()[0] for one in gone]
    assert texts == [
        "pod ns/a: deleted; before: pending, fits on none of 2 nodes",
        "pod ns/b: ended or deleted; its node was n1",
    ]


def test_texts_of_an_object_never_move_the_terminal() -> None:
    assert "\x1b" not in printed(record(asked(), notes=("\x1b[2J",)))


@contextmanager
def serving(ring: DecisionRing, token: str = "") -> Iterator[str]:
    """The endpoint on a free port of loopback, in a thread."""
    ready, urls, stop = threading.Event(), [], []

    async def serve() -> None:
        app = web.Application()
        app.add_routes(http.routes(ring, token))
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        leave = asyncio.Event()
        stop.extend([asyncio.get_running_loop(), leave])
        urls.append(f"http://127.0.0.1:{runner.addresses[0][1]}")
        ready.set()
        await leave.wait()
        await runner.cleanup()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(30)
    try:
        yield urls[0]
    finally:
        stop[0].call_soon_threadsafe(stop[1].set)
        thread.join(30)


def test_the_endpoint_serves_records_to_its_token_only() -> None:
    with serving(DecisionRing(), "secret") as url:
        assert recorded_decisions.read(Endpoint(url, "secret"), "ns", "a") == []
        with pytest.raises(NoScheduler, match="403"):
            recorded_decisions.read(Endpoint(url, "wrong"), "ns", "a")
    with pytest.raises(NoScheduler, match="no answer"):
        recorded_decisions.read(Endpoint(url, "secret"), "ns", "a")


def test_an_answer_that_is_not_the_schedulers_is_named() -> None:
    async def nonsense(_: web.Request) -> web.Response:
        return web.Response(text="[1]", content_type="application/json")

    with pytest.raises(NoScheduler, match="not a URL"):
        recorded_decisions.named("localhost:1")
    assert recorded_decisions.beside(Path("/nonexistent/kubeconfig")) is None


@pytest.mark.parametrize("named", ["{0}", "{0}:", "{0}:/other"])
def test_a_kubeconfig_of_the_environment_leads_to_its_schedulers_records(
    named, tmp_path, monkeypatch
) -> None:
    (tmp_path / recorded_decisions.FILE).write_text('{"url": "http://127.0.0.1:1", "token": "t"}')
    monkeypatch.setenv("KUBECONFIG", named.format(tmp_path / "kubeconfig"))
    endpoint = None if "other" in named else recorded_decisions.Endpoint("http://127.0.0.1:1", "t")
    assert recorded_decisions.beside(None) == endpoint


def test_the_command_names_a_missing_cluster_in_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["explain", "pod", "a", "--kubeconfig", str(tmp_path / "none")])
    assert result.exit_code == 2
    assert "no such file" in result.output
    assert len(result.output.strip().splitlines()) == 1


def test_json_has_stable_keys() -> None:
    from corelane.node.explain.json_values import json_value

    plain = json_value(explained(asked(cpus="4")))
    assert list(json.loads(json.dumps(plain))) == [
        *("namespace", "name", "uid", "source", "time", "verdict", "message", "scheduler", "node", "kind"),
        *("nodes", "feasible", "attempt", "sequence", "generation", "groups", "candidates", "totals"),
        *("terms", "containers", "objective", "nearest", "nominated", "terminating", "course", "notes"),
    ]
