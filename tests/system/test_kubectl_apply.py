"""A real kubectl and clients in the manner of Helm 4 and Flux drive server-side apply."""

import json

import pytest

from support import kubectl as program
from support.embedded import TOKEN, running_server

pytestmark = pytest.mark.system

CONFIG = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {app: web}}
data: {level: "1", mode: fast}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: main, image: "i:1", ports: [{containerPort: 80}]}
  - {name: side, image: "i:1"}
"""
SERVER = ("--server-side",)


@pytest.fixture(scope="module")
def admin(tmp_path_factory):
    with running_server(tmp_path_factory.mktemp("server")) as served:
        found = program.connect(served.url, served.authority, TOKEN, tmp_path_factory.mktemp("kubectl"))
        if found is None:
            pytest.skip(program.MISSING)
        if found.minor < 22:
            pytest.skip("server-side apply is stable from kubectl 1.22 on")
        yield found


@pytest.fixture
def kubectl(admin, request):
    """A kubectl with a namespace of the test's own as default."""
    name = request.node.name.replace("_", "-")[:60].rstrip("-")
    admin("create", "namespace", name)
    admin("config", "set-context", "--current", f"--namespace={name}")
    return admin


def apply(kubectl, manifest, *arguments, code=0):
    return kubectl("apply", *SERVER, "-f", "-", *arguments, stdin=manifest, code=code)


def managers(kubectl, *name):
    found = kubectl("get", *name, "-o", "json", "--show-managed-fields").stdout
    entries = json.loads(found)["metadata"].get("managedFields", [])
    return {(entry["manager"], entry["operation"]) for entry in entries}


def data(kubectl):
    return kubectl.json("get", "configmap", "settings").get("data")


def test_apply_creates_changes_and_removes(kubectl):
    assert apply(kubectl, CONFIG).stdout == "configmap/settings serverside-applied\n"
    first = kubectl.json("get", "configmap", "settings")["metadata"]["resourceVersion"]
    apply(kubectl, CONFIG)
    assert kubectl.json("get", "configmap", "settings")["metadata"]["resourceVersion"] == first
    apply(kubectl, CONFIG.replace(", mode: fast", ""))
    assert data(kubectl) == {"level": "1"}
    assert managers(kubectl, "configmap", "settings") == {("kubectl", "Apply")}


def test_a_conflict_names_manager_and_field_and_force_takes_them(kubectl):
    apply(kubectl, CONFIG, "--field-manager=team-a")
    other = CONFIG.replace('level: "1"', 'level: "2"')
    refused = apply(kubectl, other, "--field-manager=team-b", code=1)
    assert 'Apply failed with 1 conflict: conflict with "team-a": .data.level' in refused.stderr
    assert "--force-conflicts" in refused.stderr
    assert data(kubectl)["level"] == "1"
    apply(kubectl, other, "--field-manager=team-b", "--force-conflicts")
    assert data(kubectl)["level"] == "2"
    again = apply(kubectl, CONFIG, "--field-manager=team-a", code=1)
    assert 'conflict with "team-b": .data.level' in again.stderr


def test_fields_of_other_writers_stay(kubectl):
    apply(kubectl, CONFIG)
    kubectl("label", "configmap", "settings", "owner=ops")
    kubectl("patch", "configmap", "settings", "--type=merge", "-p", '{"data":{"extra":"x"}}')
    apply(kubectl, CONFIG.replace('level: "1"', 'level: "3"'))
    assert data(kubectl) == {"level": "3", "mode": "fast", "extra": "x"}
    assert kubectl.json("get", "configmap", "settings")["metadata"]["labels"] == {
        "app": "web",
        "owner": "ops",
    }


def test_objects_of_client_side_apply_are_taken_over_without_a_conflict(kubectl):
    kubectl("apply", "-f", "-", stdin=CONFIG)
    assert managers(kubectl, "configmap", "settings") == {("kubectl-client-side-apply", "Update")}
    apply(kubectl, CONFIG.replace('level: "1"', 'level: "2"').replace(", mode: fast", ""))
    assert data(kubectl) == {"level": "2"}, "what client-side apply had set goes too"
    assert ("kubectl", "Apply") in managers(kubectl, "configmap", "settings")


def test_lists_merge_by_their_keys(kubectl):
    apply(kubectl, POD)
    sidecar = """
    apiVersion: v1
    kind: Pod
    metadata: {name: web, annotations: {injected: "yes"}}
    spec: {containers: [{name: side, image: "i:2"}]}
    """
    refused = apply(kubectl, sidecar, "--field-manager=injector", code=1)
    assert '.spec.containers[name="side"].image' in refused.stderr
    apply(kubectl, sidecar, "--field-manager=injector", "--force-conflicts")
    containers = kubectl.json("get", "pod", "web")["spec"]["containers"]
    assert [(c["name"], c["image"]) for c in containers] == [("main", "i:1"), ("side", "i:2")]


def test_the_status_is_applied_through_its_subresource(kubectl):
    if kubectl.minor < 27:
        pytest.skip("kubectl before 1.27 applies to no subresource")
    apply(kubectl, POD)
    status = """
    apiVersion: v1
    kind: Pod
    metadata: {name: web}
    status: {conditions: [{type: example.com/ready, status: "True"}]}
    """
    if "unknown flag" in apply(kubectl, status, "--subresource=status", code=None).stderr:
        pytest.skip("this kubectl applies to no subresource")
    kinds = [c["type"] for c in kubectl.json("get", "pod", "web")["status"].get("conditions", [])]
    assert "example.com/ready" in kinds


def test_dry_runs_and_diffs_of_the_server_change_nothing(kubectl):
    apply(kubectl, CONFIG)
    changed = CONFIG.replace("fast", "slow")
    shown = kubectl("diff", *SERVER, "-f", "-", stdin=changed, code=1)
    assert "-  mode: fast\n+  mode: slow" in shown.stdout
    assert "serverside-applied (server dry run)" in apply(kubectl, changed, "--dry-run=server").stdout
    assert data(kubectl)["mode"] == "fast"
    assert kubectl("diff", *SERVER, "-f", "-", stdin=CONFIG, code=0).stdout == ""


def test_an_unknown_field_is_refused(kubectl):
    wrong = POD.replace("spec:\n", "spec:\n  cpuPinning: yes\n")
    assert (
        ".spec.cpuPinning: field not declared in schema"
        in apply(kubectl, wrong, "--validate=ignore", code=1).stderr
    )


def test_a_gitops_controllers_rounds_settle(kubectl):
    """As Flux's kustomize-controller: dry run with force, compare, apply with force, later prune."""
    flux = ("--field-manager=kustomize-controller", "--force-conflicts")
    both = CONFIG + "---" + POD
    assert apply(kubectl, both, *flux, "--dry-run=server").stdout.count("server dry run") == 2
    apply(kubectl, both, *flux)
    kubectl("patch", "configmap", "settings", "--type=merge", "-p", '{"data":{"mode":"drifted"}}')
    drift = kubectl("diff", *SERVER, *flux, "-f", "-", stdin=both, code=1)
    assert "mode: drifted" in drift.stdout
    apply(kubectl, both, *flux)
    assert data(kubectl)["mode"] == "fast"
    assert kubectl("diff", *SERVER, *flux, "-f", "-", stdin=both, code=0).stdout == ""
    kubectl("delete", "configmap", "settings", "--wait=false")


def test_a_release_managers_upgrade_and_rollback(kubectl):
    """As Helm 4: server-side apply under one manager; what a release no longer has goes."""
    helm = ("--field-manager=helm",)
    apply(kubectl, CONFIG, *helm)
    apply(kubectl, CONFIG.replace("mode: fast", "colour: red"), *helm)
    assert data(kubectl) == {"level": "1", "colour": "red"}
    apply(kubectl, CONFIG, *helm)
    assert data(kubectl) == {"level": "1", "mode": "fast"}
    assert managers(kubectl, "configmap", "settings") == {("helm", "Apply")}
