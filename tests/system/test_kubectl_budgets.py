"""A real kubectl and disruption budgets; claims, which are refused."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import kubectl as program
from support.embedded import TOKEN, running_server
from support.up import Up, up

pytestmark = pytest.mark.system

MANIFEST = """
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 50%, selector: {matchLabels: {app: web}}}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: ignored, command: [sleep, "600"]}]
"""


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[program.Kubectl]:
    with running_server(tmp_path_factory.mktemp("server")) as served:
        directory = tmp_path_factory.mktemp("kubectl")
        found = program.connect(served.url, served.authority, TOKEN, directory)
        if found is None:
            pytest.skip(program.MISSING)
        yield found


def table(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line]


def test_apply_creates_and_changes_a_budget(kubectl: program.Kubectl) -> None:
    assert kubectl("apply", "-f", "-", stdin=MANIFEST).stdout == "poddisruptionbudget.policy/web created\n"
    less = MANIFEST.replace("50%", "1")
    assert "web configured" in kubectl("apply", "-f", "-", stdin=less).stdout
    assert kubectl("get", "pdb", "web", "-o", "jsonpath={.spec.minAvailable}").stdout == "1"


def test_get_prints_upstreams_columns(kubectl: program.Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=MANIFEST)
    budget = table(kubectl("get", "pdb", "-o", "wide").stdout)
    assert budget[0] == ["NAME", "MIN", "AVAILABLE", "MAX", "UNAVAILABLE", "ALLOWED", "DISRUPTIONS", "AGE"]
    assert budget[1][:4] == ["web", "50%", "N/A", "0"]


def test_describe_and_explain_know_budgets(kubectl: program.Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=MANIFEST)
    assert "Min available:" in kubectl("describe", "pdb", "web").stdout
    assert "must stay available" in kubectl("explain", "pdb.spec.minAvailable").stdout


def test_a_wrong_budget_is_refused(kubectl: program.Kubectl) -> None:
    wrong = kubectl("apply", "-f", "-", stdin=MANIFEST.replace("50%", "ten"), code=1).stderr
    assert "spec.minAvailable" in wrong


def test_claims_are_not_served_and_a_pod_that_uses_one_is_refused(kubectl: program.Kubectl) -> None:
    assert "the server doesn't have a resource type" in kubectl("get", "pvc", code=1).stderr
    pod = POD.replace(
        "  containers:", "  volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]\n  containers:"
    )
    refused = kubectl("apply", "-f", "-", stdin=pod, code=1).stderr
    assert 'spec.volumes[0].persistentVolumeClaim: Forbidden: claim "data" is unavailable' in refused
    assert "use an emptyDir volume" in refused


# With the controller and an agent.


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("up") / "data", "--node-name", "here") as running:
        yield running


@pytest.fixture
def running(cluster: Up) -> program.Kubectl:
    found = program.find()
    if found is None:
        pytest.skip(program.MISSING)
    return program.Kubectl(*found, dict(os.environ) | {"KUBECONFIG": str(cluster.kubeconfig)})


def test_drain_waits_for_the_budget(running: program.Kubectl, tmp_path: Path) -> None:
    running("apply", "-f", "-", stdin=POD)
    running("create", "pdb", "web", "--selector=app=web", "--min-available=1")
    try:
        running("wait", "--for=condition=Ready", "pod/web", "--timeout=30s")
        running("wait", "--for=jsonpath={.status.currentHealthy}=1", "pdb/web", "--timeout=30s")
        refused = running("drain", "here", "--force", "--timeout=8s", code=1).stderr
        assert "Cannot evict pod as it would violate the pod's disruption budget" in refused
        running("delete", "pdb", "web")
        drained = running("drain", "here", "--force", "--timeout=40s")
        assert "pod/web evicted" in drained.stdout
    finally:
        running("uncordon", "here")
        running("delete", "pdb,pod", "web", "--ignore-not-found", "--timeout=40s")
