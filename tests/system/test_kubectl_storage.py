"""A real kubectl and disruption budgets, claims, persistent volumes and storage classes."""

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
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], storageClassName: local, resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk}
spec:
  capacity: {storage: 2Gi}
  accessModes: [ReadWriteOnce, ReadOnlyMany]
  storageClassName: local
  local: {path: /mnt/disk}
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [here]}]
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: local}
provisioner: kubernetes.io/no-provisioner
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: ignored, command: [sleep, "600"]}]
"""
ALL = "pdb,pvc,pv,sc"


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


def test_apply_creates_and_then_leaves_alone(kubectl: program.Kubectl) -> None:
    created = kubectl("apply", "-f", "-", stdin=MANIFEST).stdout.splitlines()
    assert created == [
        "poddisruptionbudget.policy/web created",
        "persistentvolumeclaim/data created",
        "persistentvolume/disk created",
        "storageclass.storage.k8s.io/local created",
    ]
    again = kubectl("apply", "-f", "-", stdin=MANIFEST).stdout.splitlines()
    # As with upstream's server: kubectl sends a budget's selector, which is replaced as a whole, each time.
    assert [line.rsplit(" ", 1)[1] for line in again] == ["configured", *["unchanged"] * 3]
    less = MANIFEST.replace("50%", "1")
    assert "web configured" in kubectl("apply", "-f", "-", stdin=less).stdout
    kubectl("apply", "-f", "-", stdin=MANIFEST)


def test_get_prints_upstreams_columns(kubectl: program.Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=MANIFEST)
    budget, claim, volume, found = (
        table(kubectl("get", kind, "-o", "wide").stdout) for kind in ALL.split(",")
    )
    assert budget[0] == ["NAME", "MIN", "AVAILABLE", "MAX", "UNAVAILABLE", "ALLOWED", "DISRUPTIONS", "AGE"]
    assert budget[1][:4] == ["web", "50%", "N/A", "0"]
    assert claim[0][:7] == ["NAME", "STATUS", "VOLUME", "CAPACITY", "ACCESS", "MODES", "STORAGECLASS"]
    assert claim[1][:4] == ["data", "Pending", "local", "<unset>"]
    assert volume[1][:6] == ["disk", "2Gi", "RWO,ROX", "Retain", "Pending", "local"]
    assert volume[1][-1] == "Filesystem"
    assert found[1][:5] == ["local", "kubernetes.io/no-provisioner", "Delete", "Immediate", "false"]


def test_describe_and_explain_know_the_kinds(kubectl: program.Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=MANIFEST)
    assert "Min available:" in kubectl("describe", "pdb", "web").stdout
    assert "kubernetes.io/hostname in [here]" in kubectl("describe", "pv", "disk").stdout
    assert "VolumeBindingMode:" in kubectl("describe", "sc", "local").stdout
    assert "kubernetes.io/pvc-protection" in kubectl("describe", "pvc", "data").stdout
    assert "WaitForFirstConsumer" in kubectl("explain", "sc.volumeBindingMode").stdout
    assert "must stay available" in kubectl("explain", "pdb.spec.minAvailable").stdout
    names = kubectl("api-resources", "--no-headers", "-o", "name").stdout.split()
    assert {"poddisruptionbudgets.policy", "storageclasses.storage.k8s.io", "persistentvolumes"} <= set(names)


def test_what_is_wrong_or_fixed_is_refused_in_upstreams_words(kubectl: program.Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=MANIFEST)
    wrong = kubectl("apply", "-f", "-", stdin=MANIFEST.replace("50%", "ten"), code=1).stderr
    assert "a valid percent string must be a numeric string followed by an ending '%'" in wrong
    patch = '{"spec":{"local":{"path":"/other"}}}'
    fixed = kubectl("patch", "pv", "disk", "--type=merge", "-p", patch, code=1).stderr
    assert "spec.persistentvolumesource is immutable after creation" in fixed
    fixed = kubectl("patch", "sc", "local", "-p", '{"reclaimPolicy":"Retain"}', code=1).stderr
    assert 'reclaimPolicy: Invalid value: "Retain": field is immutable' in fixed


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


def test_a_claim_is_bound_and_everything_goes_again(running: program.Kubectl) -> None:
    running("apply", "-f", "-", stdin=MANIFEST)
    running("wait", "--for=jsonpath={.status.phase}=Bound", "pvc/data", "pv/disk", "--timeout=40s")
    assert table(running("get", "pvc").stdout)[1][:6] == ["data", "Bound", "disk", "2Gi", "RWO,ROX", "local"]
    assert "default/data" in running("get", "pv").stdout
    running("delete", "-f", "-", "--timeout=40s", stdin=MANIFEST)
    assert running("get", "pvc,pv").stdout == ""
