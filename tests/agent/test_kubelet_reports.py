"""What the agent writes beside a kubelet: one condition of a pod, one of the Node, and the kubelet's CPUs."""

import asyncio
from types import MappingProxyType

import msgspec
import pytest

from corelane.agent.allocation.instructions import PublishCondition
from corelane.agent.allocation.modes import ModeInputs, ReportedPolicies, decide
from corelane.agent.bound_pods import bound_pod
from corelane.agent.kubelet.kubelet_allocations import kubelet_cpusets, kubelet_report
from corelane.agent.publication.publisher import Publisher
from corelane.agent.publication.write_queue import PublicationReporter
from corelane.cpuset import CPUSet
from corelane.kube import keys, translate
from corelane.kube.objects import KubeletConfiguration
from corelane.kube.pod import Pod
from corelane.kube.translate.koordlet import KubeletReport, PodCPUs
from corelane.machine.spec import parse_spec
from corelane.node.config import NodeConfig
from corelane.node.entries import Entry, Origin, Sharing
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.node.ledger import new, with_entries
from support.clocks import SetClocks

MACHINE = parse_spec("socket:1 core:4 smt:2")
CPUS = CPUSet.parse("2-3")
STATIC = Checkpoint("static", CPUSet.parse("0-1,4-7"), {"u": {"main": CPUS}})
NONE = Checkpoint("none", CPUSet(), {})
NAMES = {"u": "ns/web"}


class Client:
    def __init__(self):
        self.patches = []

    async def patch(self, kind, name, body, **options):
        self.patches.append(
            (kind.api.kind, name, body, options.get("kind_of_patch"), options.get("subresource"))
        )
        return {}


def writes(body):
    async def main():
        client = Client()
        publisher = Publisher(client, "n", PublicationReporter(), SetClocks())
        tasks = [asyncio.create_task(queue.run()) for queue in publisher.queues]
        body(publisher)
        await asyncio.wait_for(publisher.idle(), 120)
        for task in tasks:
            task.cancel()
        return client.patches

    return asyncio.run(main())


def pod(name="web", uid="u", **annotations):
    metadata = {"name": name, "namespace": "ns", "uid": uid, "annotations": annotations}
    return msgspec.convert({"metadata": metadata}, Pod)


def mode(policy, **inputs):
    return decide(ModeInputs(ReportedPolicies(policy, "", "None", policy), **inputs))


def ledger(*entries):
    state = new(MACHINE, NodeConfig("pools"))
    return with_entries(state, {entry.key: entry for entry in entries}, {e.uid: 2000 for e in entries})


HELD = Entry("u", "main", "ns/web", CPUS, Sharing.ALONE, origin=Origin.KUBELET)


def test_of_a_pods_status_only_the_condition_is_written():
    order = PublishCondition("u", False, "OutOfcpu", "no room", 0.0)
    (patch,) = writes(lambda publisher: publisher.publish(pod(), order, MACHINE))
    kind, name, body, kind_of_patch, subresource = patch
    assert (kind, name, kind_of_patch, subresource) == ("Pod", "web", "strategic", "status")
    assert body == {
        "metadata": {"uid": "u"},
        "status": {
            "conditions": [
                {
                    "type": "corelane.io/Pinned",
                    "status": "False",
                    "reason": "OutOfcpu",
                    "message": "no room",
                    "lastTransitionTime": "1970-01-01T00:00:00Z",
                }
            ]
        },
    }


def test_the_time_of_the_last_transition_stays_while_the_status_does():
    conditions = [{"type": keys.PINNED, "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    known = msgspec.convert(
        {"metadata": {"name": "web", "uid": "u"}, "status": {"conditions": conditions}}, Pod
    )
    times = {}
    for holds in (False, True):
        order = PublishCondition("u", holds, "Reason")
        (patch,) = writes(lambda publisher, order=order: publisher.publish(known, order, MACHINE))
        times[holds] = patch[2]["status"]["conditions"][0]["lastTransitionTime"]
    assert times == {False: "2026-01-01T00:00:00Z", True: "1970-01-01T00:00:00Z"}
    assert PublishCondition("u", True, "a", at=1.0) == PublishCondition("u", True, "a", at=2.0)


def test_a_static_pod_is_written_through_its_mirror_which_has_another_uid():
    order = PublishCondition("hash", True, "Confirmed", "", 0.0)
    static = pod(uid="hash", **{keys.CONFIG_HASH: "hash", keys.CONFIG_SOURCE: "file"})
    mirror = pod(
        uid="m", **{keys.CONFIG_HASH: "hash", keys.CONFIG_SOURCE: "file", keys.CONFIG_MIRROR: "hash"}
    )
    (patch,) = writes(lambda publisher: publisher.publish(static, order, MACHINE))
    assert "metadata" not in patch[2]
    (patch,) = writes(lambda publisher: publisher.publish(mirror, order, MACHINE))
    assert patch[2]["metadata"] == {"uid": "m"}


def test_a_mirror_runs_under_its_manifests_uid_and_no_other_pod_does_by_an_annotation():
    hashed = {keys.CONFIG_HASH: "victim"}
    assert translate.running_uid(pod(uid="m", **hashed, **{keys.CONFIG_MIRROR: "victim"})) == "victim"
    assert translate.running_uid(pod(uid="own", **hashed)) == "own"


def test_the_ledger_has_a_condition_of_its_own_on_the_node():
    (patch,) = writes(lambda publisher: publisher.ledger_condition("No space left on device", 0.0))
    kind, name, body, kind_of_patch, subresource = patch
    assert (kind, name, kind_of_patch, subresource) == ("Node", "n", "strategic", "status")
    (condition,) = body["status"]["conditions"]
    assert condition["type"] == "corelane.io/LedgerWritable"
    assert (condition["status"], condition["message"]) == ("False", "No space left on device")
    (patch,) = writes(lambda publisher: publisher.ledger_condition("", 0.0))
    assert patch[2]["status"]["conditions"][0]["status"] == "True"


def test_the_kubelets_cpus_are_written_to_pods_where_they_differ():
    pods = [
        pod("new", "u"),
        pod("same", "s", **{keys.KUBELET_CPUSETS: '{"main":"4-5"}'}),
        pod("released", "r", **{keys.KUBELET_CPUSETS: '{"main":"6"}'}),
        pod("static", "m", **{keys.CONFIG_HASH: "h", keys.CONFIG_MIRROR: "h", keys.CONFIG_SOURCE: "file"}),
    ]
    assignments = {"u": {"main": CPUS}, "s": {"main": CPUSet.parse("4-5")}, "h": {"main": CPUSet([7])}}
    patches = writes(lambda publisher: publisher.kubelet_cpusets(pods, assignments))
    annotations = {name: body["metadata"]["annotations"] for _, name, body, _, _ in patches}
    assert annotations == {
        "new": {keys.KUBELET_CPUSETS: '{"main":"2-3"}'},
        "released": {keys.KUBELET_CPUSETS: None},
        "static": {keys.KUBELET_CPUSETS: '{"main":"7"}'},
    }


def test_the_mirror_of_a_static_pod_is_written_once():
    static = pod("static", "h", **{keys.CONFIG_HASH: "h", keys.CONFIG_SOURCE: "file"})

    def twice(publisher):
        for cpus in ("6-7", "6-7"):
            publisher.kubelet_cpusets([static], {"h": {"main": CPUSet.parse(cpus)}})

    (patch,) = writes(twice)
    assert patch[2]["metadata"]["annotations"] == {keys.KUBELET_CPUSETS: '{"main":"6-7"}'}


def test_a_mirror_is_written_again_when_the_kubelets_cpus_change():
    static = pod("static", "h", **{keys.CONFIG_HASH: "h", keys.CONFIG_SOURCE: "file"})
    seen = []

    def changes(publisher):
        publisher.patch = lambda _pod, _part, body: seen.append(body["metadata"]["annotations"])
        for assignments in ({"main": CPUSet([6])}, {"main": CPUSet([6])}, {"main": CPUSet([7])}, {}, {}):
            publisher.kubelet_cpusets([static], {"h": assignments})

    writes(changes)
    assert [annotations[keys.KUBELET_CPUSETS] for annotations in seen] == [
        '{"main":"6"}',
        '{"main":"7"}',
        None,
    ]


def test_under_a_static_kubelet_its_settings_and_allocations_are_reported():
    configuration = KubeletConfiguration(cpu_manager_policy="static", reserved_system_cpus="0")
    found = kubelet_report(mode("static"), ledger(), configuration, STATIC, NAMES)
    assert found.settings.policy == "static"
    assert found.settings.reserved == CPUSet([0])
    assert found.pods == (PodCPUs("ns", "web", "u", CPUS),)
    assert kubelet_cpusets(mode("static"), ledger(), STATIC) == {"u": {"main": CPUS}}


def test_without_an_answer_of_configz_the_state_file_names_the_policy():
    assert kubelet_report(mode("static"), ledger(), None, STATIC, {}).settings.policy == "static"
    assert kubelet_report(mode("static"), ledger(), None, None, {}) == KubeletReport()


def test_during_a_takeover_the_ledgers_kubelet_pods_are_reported():
    found = kubelet_report(mode("none"), ledger(HELD), KubeletConfiguration(), NONE, NAMES)
    assert found.settings.policy == "none"
    assert found.pods == (PodCPUs("ns", "web", "u", CPUS),)


@pytest.mark.parametrize("checkpoint", [STATIC, NONE, None])
def test_an_ignored_kubelet_is_not_reported(checkpoint):
    ignored = mode("static", ignore=True)
    assert kubelet_report(ignored, ledger(HELD), KubeletConfiguration(), checkpoint, NAMES) == KubeletReport()
    assert kubelet_cpusets(ignored, ledger(HELD), checkpoint) == {}


@pytest.mark.parametrize("inputs", [{"read_only": True}, {"node_policy": "none"}])
def test_modes_that_write_no_cpuset_report_all_the_same(inputs):
    found = kubelet_report(mode("static", **inputs), ledger(), KubeletConfiguration(), STATIC, NAMES)
    assert found.pods == (PodCPUs("ns", "web", "u", CPUS),)


def test_names_may_be_unknown():
    assert kubelet_cpusets(mode("static"), ledger(), STATIC) == {"u": {"main": CPUS}}
    found = kubelet_report(mode("static"), ledger(), None, STATIC, MappingProxyType({}))
    assert found.pods == (PodCPUs("", "", "u", CPUS),)


@pytest.mark.parametrize(
    ("status", "milli", "limit"),
    [
        ({}, 800, 800),
        ({"resources": {"requests": {"cpu": "100m"}}}, 100, 0),
        ({"resources": {"limits": {"cpu": "300m"}}}, 300, 300),
        ({"resources": {"requests": {"cpu": "200m"}, "limits": {"cpu": "300m"}}}, 200, 300),
        ({"resources": {"limits": {"cpu": "x"}}}, 800, 800),
    ],
)
@pytest.mark.parametrize("sidecar", [False, True])
def test_request_and_limit_are_those_that_the_kubelet_has_applied(status, milli, limit, sidecar):
    """The spec has that of a resize which the kubelet has deferred."""
    part = "initContainers" if sidecar else "containers"
    statuses = "initContainerStatuses" if sidecar else "containerStatuses"
    container = {"name": "a", "resources": {"limits": {"cpu": "800m"}}, "restartPolicy": "Always"}
    pod = msgspec.convert(
        {
            "metadata": {"name": "p", "namespace": "default", "uid": "u"},
            "spec": {part: [container]},
            "status": {statuses: [{"name": "a"} | status]},
        },
        Pod,
    )
    (request,) = bound_pod("u", pod).request.containers
    assert (request.cpu_request, request.cpu_limit) == (milli, limit)
