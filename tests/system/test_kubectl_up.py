"""A real kubectl against a running `corelane up`: manifests in, pinned processes out."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import kubectl as program
from support.containers import limits_memory
from support.up import Up, up

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU: nothing can be exclusive"),
]

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    machine = "socket:2 core:8 smt:2"
    directory = tmp_path_factory.mktemp("up")
    with up(directory / "data", "--node-name", "here", "--nodes", "1", "--machine", machine) as running:
        yield running


@pytest.fixture(scope="module")
def kubectl(cluster: Up) -> program.Kubectl:
    found = program.find()
    if found is None:
        pytest.skip(program.MISSING)
    return program.Kubectl(*found, dict(os.environ) | {"KUBECONFIG": str(cluster.kubeconfig)})


def test_the_main_job_by_kubectl_alone(kubectl: program.Kubectl) -> None:
    watch = kubectl.start("get", "pods", "-w")
    seen: list[str] = []
    reader = threading.Thread(target=lambda: seen.extend(watch.stdout or ()), daemon=True)
    reader.start()
    try:
        created = kubectl("apply", "-f", str(EXAMPLES)).stdout
        assert "pod/latency-critical created" in created
        kubectl("wait", "--for=condition=Ready", "pod/latency-critical", "--timeout=20s")
        kubectl("wait", "--for=condition=corelane.io/Pinned", "pod/latency-critical", "--timeout=20s")
        kubectl("wait", "--for=condition=Ready", "pod/trading-engine", "pod/model-server", "--timeout=20s")
        kubectl("wait", "--for=condition=Ready", "pod/lse", "pod/lsr", "pod/ls", "--timeout=20s")

        wide = kubectl("get", "pods", "-o", "wide").stdout
        nodes = {line.split()[0]: line.split() for line in wide.splitlines()[1:]}
        assert "here" in nodes["latency-critical"]
        assert nodes["latency-critical"][1:3] == ["2/2", "Running"]
        assert "sim-1" in nodes["trading-engine"]
        assert nodes["too-big"][2] == "Pending"

        told = kubectl("describe", "pod", "latency-critical").stdout
        assert "CPUs: server" in told
        assert "confirmed by the kernel" in told
        assert "Insufficient cpu" in kubectl("describe", "pod", "too-big").stdout
        assert "simulated" in kubectl("describe", "node", "sim-1").stdout

        (line,) = kubectl("logs", "latency-critical", "-c", "server").stdout.splitlines()
        cpus = line.removeprefix("serving on CPUs ")
        assert cpus.isdecimal()
        missing = kubectl("logs", "latency-critical", "-c", "nonsense", code=None)
        assert missing.returncode != 0
        assert "nonsense" in missing.stderr

        kubectl("patch", "pod", "batch", "-p", '{"metadata":{"labels":{"tier":"low"}}}')
        assert kubectl("get", "pods", "-l", "tier=low", "-o", "name").stdout == "pod/batch\n"
        kubectl("delete", "pod", "latency-critical", "--timeout=20s")
        kubectl("get", "pod", "latency-critical", code=1)
    finally:
        watch.terminate()
        watch.wait(10)
    reader.join(10)
    statuses = [line.split()[2] for line in seen if line.startswith("latency-critical")]
    assert "Running" in statuses
    assert "Terminating" in statuses


def test_followed_logs_end_with_the_container(kubectl: program.Kubectl) -> None:
    manifest = """
apiVersion: v1
kind: Pod
metadata: {name: counter}
spec:
  restartPolicy: Never
  containers:
  - {name: c, image: ignored, command: [/bin/sh, -c, "for i in 1 2 3; do echo $i; sleep 0.3; done; exit 3"]}
"""
    kubectl("apply", "-f", "-", stdin=manifest)
    kubectl("wait", "--for=condition=PodScheduled", "pod/counter", "--timeout=20s")
    for _ in range(50):
        if kubectl.json("get", "pod", "counter")["status"]["phase"] != "Pending":
            break
    assert kubectl("logs", "-f", "counter").stdout == "1\n2\n3\n"
    kubectl("wait", "--for=jsonpath={.status.phase}=Failed", "pod/counter", "--timeout=20s")
    state = kubectl.json("get", "pod", "counter")["status"]["containerStatuses"][0]["state"]
    assert state["terminated"]["exitCode"] == 3


def test_pods_that_cannot_run_here_say_why(kubectl: program.Kubectl) -> None:
    manifest = """
apiVersion: v1
kind: Pod
metadata: {name: no-command}
spec: {containers: [{name: c, image: nginx}]}
"""
    kubectl("apply", "-f", "-", stdin=manifest)
    kubectl("wait", "--for=jsonpath={.status.phase}=Failed", "pod/no-command", "--timeout=20s")
    status = kubectl.json("get", "pod", "no-command")["status"]
    assert "command" in status["message"]


@pytest.mark.skipif(not limits_memory(), reason="needs memory cgroups that can be written")
@pytest.mark.parametrize(("policy", "shown"), [("Never", "OOMKilled"), ("Always", "CrashLoopBackOff")])
def test_a_pod_out_of_memory_is_shown_as_such(kubectl: program.Kubectl, policy: str, shown: str) -> None:
    name = f"eater-{policy.lower()}"
    manifest = f"""
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  restartPolicy: {policy}
  containers: [{{name: c, image: x, command: [tail, /dev/zero], resources: {{limits: {{memory: 32Mi}}}}}}]
"""
    kubectl("apply", "-f", "-", stdin=manifest)
    for _ in range(100):
        line = kubectl("get", "pod", name, "--no-headers").stdout
        if shown in line:
            break
    assert line.split()[2] == shown
    described = kubectl("describe", "pod", name).stdout
    assert re.search(r"Reason:\s+OOMKilled\n\s+Exit Code:\s+137", described)
    assert "Container c was out of memory at its memory limit of 32Mi" in described
    kubectl("delete", "pod", name, "--timeout=20s")


def test_an_emptied_namespace_goes_away(kubectl: program.Kubectl) -> None:
    kubectl("create", "namespace", "brief")
    kubectl("create", "configmap", "c", "-n", "brief", "--from-literal=a=1")
    kubectl("run", "p", "-n", "brief", "--image=x", "--command", "--", "/bin/sleep", "100")
    kubectl("wait", "-n", "brief", "--for=condition=Ready", "pod/p", "--timeout=20s")
    kubectl("delete", "pod", "p", "-n", "brief", "--grace-period=1", "--timeout=20s")
    kubectl("delete", "namespace", "brief", "--timeout=20s")
    kubectl("get", "namespace", "brief", code=1)


def test_status_shows_what_kubectl_started(cluster: Up, kubectl: program.Kubectl) -> None:
    kubectl("wait", "--for=condition=Ready", "pod/batch", "--timeout=20s")
    from sys import executable

    shown = subprocess.run(
        [executable, "-m", "corelane", "status", "--kubeconfig", str(cluster.kubeconfig)],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    ).stdout
    assert "batch/crunch" in shown
    assert "trading-engine/engine" in shown
    assert "simulated" in shown


FLOATING = """
apiVersion: v1
kind: Pod
metadata: {name: NAME, labels: {koordinator.sh/qosClass: LS}}
spec:
  nodeSelector: {corelane.io/simulated: "true"}
  tolerations: [{key: corelane.io/simulated, operator: Exists}]
  containers: [{name: c, image: x, resources: {requests: {cpu: 100m}}}]
"""
STATUS = "scheduling.koordinator.sh/resource-status"
LABEL = "node.koordinator.sh/numa-topology-policy"


def test_labels_of_a_node_are_its_settings_while_it_runs(kubectl: program.Kubectl) -> None:
    def floats(name: str) -> dict[str, str]:
        """The annotations of a new pod of the shared pool."""
        kubectl("apply", "-f", "-", stdin=FLOATING.replace("NAME", name))
        kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=20s")
        found = kubectl.json("get", "pod", name)["metadata"].get("annotations", {})
        kubectl("delete", "pod", name, "--timeout=20s")
        return found

    def aligned(word: str) -> None:
        path = "--for=jsonpath={.topologyPolicies[0]}=" + word
        kubectl("wait", path, "noderesourcetopology/sim-1", "--timeout=20s")

    assert STATUS not in floats("before")
    kubectl("label", "node", "sim-1", f"{LABEL}=SingleNUMANode")
    aligned("SingleNUMANodePodLevel")
    assert "cpuSharedPools" in floats("held")[STATUS]

    kubectl("label", "node", "sim-1", f"{LABEL}=Tight", "--overwrite")
    for _ in range(50):
        told = kubectl("get", "events", "--field-selector", "reason=InvalidSetting").stdout
        if LABEL in told:
            break
    assert "invalid value 'Tight': use BestEffort, Restricted, SingleNUMANode or None" in told
    assert "cpuSharedPools" in floats("still-held")[STATUS]

    kubectl("label", "node", "sim-1", f"{LABEL}-")
    aligned("None")
    assert STATUS not in floats("after")
