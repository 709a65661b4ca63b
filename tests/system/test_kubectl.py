"""A real kubectl drives the embedded API server through what people do with it every day."""

import itertools
import json
import os
import time
from contextlib import contextmanager

import pytest

from support import kubectl as program
from support.embedded import TOKEN, Logs, running_server

pytestmark = pytest.mark.system

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - name: main
    image: ignored
    command: [sleep, "60"]
    resources: {requests: {cpu: "1", memory: 64Mi}, limits: {cpu: "1", memory: 64Mi}}
  - {name: side, image: ignored, command: [sleep, "60"]}
"""
NODE = """
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {node-role.kubernetes.io/worker: ""}}
"""
TOPOLOGY = """
apiVersion: topology.node.k8s.io/v1alpha2
kind: NodeResourceTopology
metadata: {name: n1}
attributes: [{name: topologyManagerPolicy, value: none}]
zones:
- {name: node-0, type: Node, resources: [{name: cpu, capacity: "4", allocatable: "4", available: 3500m}]}
"""


NAMES = (f"t{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running_server(tmp_path_factory.mktemp("server"), log_source=Logs()) as served:
        yield served


@pytest.fixture(scope="module")
def admin(server, tmp_path_factory):
    found = program.connect(server.url, server.authority, TOKEN, tmp_path_factory.mktemp("kubectl"))
    if found is None:
        pytest.skip(program.MISSING)
    return found


@pytest.fixture
def kubectl(admin):
    """A kubectl with a namespace of the test's own as default."""
    name = next(NAMES)
    admin("create", "namespace", name)
    admin("config", "set-context", "--current", f"--namespace={name}")
    return admin


def apply(kubectl, manifest, *arguments, code=0):
    return kubectl("apply", "-f", "-", *arguments, stdin=manifest, code=code)


RUNNING = {
    "phase": "Running",
    "podIP": "192.0.2.9",
    "podIPs": [{"ip": "192.0.2.9"}],
    "conditions": [{"type": "Ready", "status": "True"}],
    "containerStatuses": [
        {
            "name": name,
            "ready": True,
            "restartCount": 0,
            "image": "i",
            "imageID": "",
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        }
        for name in ("main", "side")
    ],
}


def test_apply_creates_then_leaves_alone_then_changes(kubectl):
    assert apply(kubectl, POD).stdout == "pod/web created\n"
    assert apply(kubectl, POD).stdout == "pod/web unchanged\n"
    changed = POD.replace("{app: web}", "{app: web, tier: front}")
    assert apply(kubectl, changed).stdout == "pod/web configured\n"
    assert kubectl.json("get", "pod", "web")["metadata"]["labels"] == {"app": "web", "tier": "front"}
    assert apply(kubectl, POD).stdout == "pod/web configured\n"
    assert kubectl.json("get", "pod", "web")["metadata"]["labels"] == {"app": "web"}


def test_get_prints_the_servers_table_and_wide_adds_columns(kubectl):
    apply(kubectl, POD)
    header, row = kubectl("get", "pods").stdout.splitlines()
    assert header.split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row.split()[:4] == ["web", "0/2", "Pending", "0"]
    kubectl.write_status("pods", "web", RUNNING)
    header, row = kubectl("get", "pods", "-o", "wide").stdout.splitlines()
    wide = "NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES"
    assert header.split() == wide.split()
    assert row.split()[:4] == ["web", "2/2", "Running", "0"]
    assert row.split()[5:] == ["192.0.2.9", "<none>", "<none>", "<none>"]
    assert kubectl("get", "pods", "-o", "name").stdout == "pod/web\n"
    path = "{.items[*].spec.containers[*].name}"
    assert kubectl("get", "pods", "-o", f"jsonpath={path}").stdout == "main side"
    assert "qosClass: Burstable" in kubectl("get", "pod", "web", "-o", "yaml").stdout
    assert "web" in kubectl("get", "po", "-A", "-l", "app=web").stdout
    assert kubectl("get", "po", "-l", "app!=web").stderr.startswith("No resources found")
    assert "web" in kubectl("get", "all").stdout
    assert "web" in kubectl("get", "po", "--field-selector", "status.phase=Running").stdout


@contextmanager
def watching(kubectl, *arguments):
    process = kubectl.start("get", *arguments, "-w", "--output-watch-events")
    try:
        yield process.stdout
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()


def test_a_watch_prints_every_change_as_it_comes(kubectl):
    apply(kubectl, POD)
    with watching(kubectl, "pods") as lines:
        assert lines.readline().split()[:2] == ["EVENT", "NAME"]
        assert lines.readline().split()[:4] == ["ADDED", "web", "0/2", "Pending"]
        kubectl.write_status("pods", "web", RUNNING)
        assert lines.readline().split()[:4] == ["MODIFIED", "web", "2/2", "Running"]
        kubectl("delete", "pod", "web", "--grace-period=0", "--force", "--wait=false")
        words = lines.readline().split()
        while words[0] == "MODIFIED":
            words = lines.readline().split()
        assert words[:2] == ["DELETED", "web"]


def test_describe_tells_of_pods_with_their_events_and_of_nodes(kubectl):
    apply(kubectl, POD)
    pod = kubectl.json("get", "pod", "web")["metadata"]
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "web.1", "namespace": pod["namespace"]},
        "involvedObject": {"kind": "Pod", "name": "web", "namespace": pod["namespace"], "uid": pod["uid"]},
        "reason": "FailedScheduling",
        "message": "0/1 nodes have 64 free CPUs",
        "type": "Warning",
        "source": {"component": "corelane-scheduler"},
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 1,
    }
    kubectl("create", "-f", "-", stdin=json.dumps(event))
    told = kubectl("describe", "pod", "web").stdout
    assert "Burstable" in told
    assert "FailedScheduling" in told
    assert "0/1 nodes have 64 free CPUs" in told
    assert "FailedScheduling" in kubectl("get", "events").stdout
    apply(kubectl, NODE)
    kubectl.write_status("nodes", "n1", {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3"}})
    told = kubectl("describe", "node", "n1").stdout
    assert "worker" in told
    assert "Allocatable:" in told


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("json", '[{"op": "add", "path": "/metadata/labels/x", "value": "1"}]'),
        ("merge", '{"metadata": {"labels": {"x": "1"}}}'),
        (
            "strategic",
            '{"metadata": {"labels": {"x": "1"}}, "spec": {"containers": [{"name": "side", "image": "b"}]}}',
        ),
    ],
)
def test_every_type_of_patch_changes_what_it_says_and_no_more(kubectl, kind, patch):
    apply(kubectl, POD)
    assert kubectl("patch", "pod", "web", f"--type={kind}", "-p", patch).stdout == "pod/web patched\n"
    pod = kubectl.json("get", "pod", "web")
    assert pod["metadata"]["labels"] == {"app": "web", "x": "1"}
    images = [c["image"] for c in pod["spec"]["containers"]]
    assert images == ["ignored", "b" if kind == "strategic" else "ignored"]


def test_the_status_is_patched_apart_from_the_rest(kubectl):
    if kubectl.minor < 24:
        pytest.skip("kubectl before 1.24 has no --subresource")
    apply(kubectl, POD)
    both = '{"status": {"phase": "Running"}, "metadata": {"labels": {"x": "1"}}, "spec": {"nodeName": "n"}}'
    kubectl("patch", "pod", "web", "--subresource=status", "--type=merge", "-p", both)
    pod = kubectl.json("get", "pod", "web")
    assert pod["status"]["phase"] == "Running"
    assert "nodeName" not in pod["spec"]


def test_logs_come_from_the_log_source_once_the_pod_has_a_node(kubectl):
    apply(kubectl, POD)
    assert kubectl("logs", "web", "-c", "side").stdout == ""
    kubectl("delete", "pod", "web")
    apply(kubectl, POD.replace("spec:\n", "spec:\n  nodeName: n9\n"))
    assert kubectl("logs", "web", "-c", "side").stdout == "line 1 of web/side\nline 2 of web/side\n"
    failed = kubectl("logs", "none", code=1)
    assert 'pods "none" not found' in failed.stderr
    refused = kubectl("logs", "web", "-c", "other", code=1)
    assert "container other is not valid for pod web" in refused.stderr


def test_labels_and_annotations_are_set_overwritten_on_demand_and_removed(kubectl):
    apply(kubectl, POD)
    kubectl("label", "pod", "web", "tier=front")
    kubectl("annotate", "pod", "web", "note=one")
    refused = kubectl("label", "pod", "web", "tier=back", code=1)
    assert "already has a value" in refused.stderr
    kubectl("label", "pod", "web", "tier=back", "--overwrite")
    assert kubectl.json("get", "pod", "web")["metadata"]["labels"]["tier"] == "back"
    assert kubectl.json("get", "pod", "web")["metadata"]["annotations"]["note"] == "one"
    kubectl("label", "pod", "web", "tier-")
    kubectl("annotate", "pod", "web", "note-")
    assert "tier" not in kubectl.json("get", "pod", "web")["metadata"]["labels"]


def test_delete_waits_until_the_object_is_gone(kubectl):
    apply(kubectl, POD)
    assert "deleted" in kubectl("delete", "pod", "web").stdout
    assert 'pods "web" not found' in kubectl("get", "pod", "web", code=1).stderr
    apply(kubectl, POD)
    kubectl("delete", "-f", "-", stdin=POD)
    assert "not found" in kubectl("delete", "pod", "web", code=1).stderr
    assert kubectl("delete", "pod", "web", "--ignore-not-found").stdout == ""
    for name in "ab":
        kubectl("create", "configmap", name, "--from-literal=k=v")
    kubectl("delete", "configmaps", "--all")
    assert "No resources found" in kubectl("get", "configmaps").stderr


def test_a_pod_on_a_node_is_terminating_until_its_agent_lets_go(kubectl):
    apply(kubectl, POD.replace("spec:\n", "spec:\n  nodeName: n9\n"))
    kubectl("delete", "pod", "web", "--wait=false")
    assert kubectl("get", "pod", "web", "--no-headers").stdout.split()[2] == "Terminating"
    kubectl("delete", "pod", "web", "--grace-period=0", "--force")
    assert "not found" in kubectl("get", "pod", "web", code=1).stderr


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("pods", ["KIND:", "Pod", "spec", "metadata"]),
        ("pod.spec.containers.resources", ["requests", "limits"]),
        ("node.status.allocatable", ["allocatable"]),
        ("leases.spec", ["holderIdentity"]),
        ("noderesourcetopologies.zones", ["resources", "costs"]),
    ],
)
def test_explain_knows_the_fields(kubectl, path, words):
    told = kubectl("explain", path).stdout
    assert [word for word in words if word not in told] == []


def test_explain_recursive_reaches_the_depths(kubectl):
    assert "topologySpreadConstraints" in kubectl("explain", "pod", "--recursive").stdout
    assert "does not exist" in kubectl("explain", "pod.spec.bogus", code=1).stderr


def test_api_resources_and_versions_list_what_is_served(kubectl):
    told = kubectl("api-resources", "-o", "wide").stdout
    kinds = {line.split()[0] for line in told.splitlines()[1:]}
    core = {"configmaps", "events", "namespaces", "nodes", "pods", "secrets"}
    reviews = {"selfsubjectaccessreviews", "selfsubjectreviews", "selfsubjectrulesreviews", "tokenreviews"}
    others = {"leases", "poddisruptionbudgets", "priorityclasses", "noderesourcetopologies"}
    assert kinds == core | reviews | others
    versions = kubectl("api-versions").stdout.split()
    assert {"v1", "topology.node.k8s.io/v1alpha1", "topology.node.k8s.io/v1alpha2"} <= set(versions)
    assert "corelane" in kubectl("version", "-o", "json").stdout
    assert kubectl("get", "--raw", "/readyz").stdout == "ok"


@pytest.mark.parametrize(
    ("manifest", "fault"),
    [
        (POD.replace("name: web,", "name: Web_1,"), "metadata.name"),
        (POD.replace("name: main", "name: side"), 'spec.containers[1].name: Duplicate value: "side"'),
        (POD.replace('limits: {cpu: "1"', 'limits: {cpu: "0.5"'), "must be at most the cpu limit"),
        (POD.replace("memory: 64Mi}, limits", "memory: lots}, limits"), "requests.memory: got string"),
        (POD.replace("kind: Pod", "kind: Deployment"), 'no matches for kind "Deployment"'),
        (TOPOLOGY.replace("type: Node, ", ""), "zones[0].type: Required value"),
        ("kind: Pod\nspec: [oops\n", "error"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n", "spec.containers: Required value"),
    ],
)
def test_a_wrong_manifest_is_refused_by_the_name_of_its_field(kubectl, manifest, fault):
    # Before 1.25 kubectl finds faults itself, by our schemas, in words of its own.
    leave_it = ["--validate=false"] if kubectl.minor < 25 else []
    assert fault in apply(kubectl, manifest, *leave_it, code=1).stderr


def test_an_unknown_field_is_refused_unless_told_to_warn(kubectl):
    if kubectl.minor < 27:
        pytest.skip("kubectl before 1.27 does not ask the server to validate")
    wrong = POD.replace("spec:\n", "spec:\n  cpuPinning: yes\n")
    assert 'unknown field "spec.cpuPinning"' in apply(kubectl, wrong, code=1).stderr
    done = apply(kubectl, wrong, "--validate=warn")
    assert 'unknown field "spec.cpuPinning"' in done.stderr
    assert done.stdout == "pod/web created\n"


def test_dry_runs_and_diffs_change_nothing(kubectl):
    assert "created (server dry run)" in apply(kubectl, POD, "--dry-run=server").stdout
    assert "not found" in kubectl("get", "pod", "web", code=1).stderr
    apply(kubectl, POD)
    told = kubectl("diff", "-f", "-", stdin=POD.replace("{app: web}", "{app: api}"), code=1)
    assert "+    app: api" in told.stdout
    assert kubectl.json("get", "pod", "web")["metadata"]["labels"] == {"app": "web"}


@pytest.mark.parametrize(
    "arguments", [("exec", "web", "--", "ls"), ("attach", "web"), ("port-forward", "web", "80")]
)
def test_what_is_not_served_says_so(kubectl, arguments):
    apply(kubectl, POD.replace("spec:\n", "spec:\n  nodeName: n9\n"))
    kubectl.write_status("pods", "web", RUNNING)
    failed = kubectl(*arguments, code=None)
    assert failed.returncode != 0
    assert "not" in failed.stderr


def test_nodes_are_cordoned_tainted_and_drained(kubectl):
    apply(kubectl, NODE)
    kubectl("cordon", "n1")
    assert kubectl("get", "node", "n1", "--no-headers").stdout.split()[1] == "Unknown,SchedulingDisabled"
    kubectl("uncordon", "n1")
    kubectl("taint", "node", "n1", "dedicated=x:NoSchedule", "--overwrite")
    taints = kubectl.json("get", "node", "n1")["spec"]["taints"]
    assert {"key": "dedicated", "value": "x", "effect": "NoSchedule"} in taints
    kubectl("taint", "node", "n1", "dedicated-")
    assert "drained" in kubectl("drain", "n1", "--ignore-daemonsets", "--force").stdout
    kubectl("delete", "node", "n1")


def test_config_maps_are_created_edited_and_replaced(kubectl):
    kubectl("create", "configmap", "settings", "--from-literal=level=low")
    edited = {**kubectl.environment, "KUBE_EDITOR": "sed -i s/low/high/", "PATH": os.environ["PATH"]}
    program.Kubectl(kubectl.path, kubectl.minor, edited)("edit", "configmap", "settings")
    settings = kubectl.json("get", "configmap", "settings")
    assert settings["data"] == {"level": "high"}
    settings["data"]["level"] = "low"
    kubectl("replace", "-f", "-", stdin=json.dumps(settings))
    settings["data"]["level"] = "mid"
    stale = kubectl("replace", "-f", "-", stdin=json.dumps(settings), code=1)
    assert "the object has been modified" in stale.stderr
    assert kubectl.json("get", "configmap", "settings")["data"] == {"level": "low"}


def test_wait_returns_once_the_condition_holds(kubectl):
    apply(kubectl, POD)
    timed_out = kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=1s", code=1)
    assert "timed out" in timed_out.stderr
    waiting = kubectl.start("wait", "--for=condition=Ready", "pod/web", "--timeout=20s")
    time.sleep(0.5)
    kubectl.write_status("pods", "web", RUNNING)
    assert waiting.communicate(timeout=20)[0] == "pod/web condition met\n"


def test_topologies_are_read_in_both_versions(kubectl):
    apply(kubectl, TOPOLOGY)
    assert kubectl("get", "noderesourcetopologies", "--no-headers").stdout.split()[0] == "n1"
    older = kubectl.json("get", "noderesourcetopologies.v1alpha1.topology.node.k8s.io", "n1")
    assert older["apiVersion"] == "topology.node.k8s.io/v1alpha1"
    assert older["zones"][0]["resources"][0]["available"] == "3500m"
    kubectl("delete", "-f", "-", stdin=TOPOLOGY)


def test_a_wrong_token_is_refused(server, admin, tmp_path):
    other = program.connect(server.url, server.authority, "wrong", tmp_path)
    assert "must be logged in" in other("get", "pods", code=1).stderr
