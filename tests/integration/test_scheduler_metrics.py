"""The extension points' metrics of corelane beside those of a running kube-scheduler, for the same pods.

$KUBE_SCHEDULER names kube-scheduler's binary, $KUBEBUILDER_ASSETS a directory with kube-apiserver and etcd.
"""

import asyncio
import json
import os
import re
import shutil
import ssl
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from corelane.kube.client import APIError, KubeClient
from corelane.kube.meta import condition
from corelane.kube.objects import Node
from corelane.kube.pod import Pod
from corelane.kube.storage import PersistentVolume
from support import scheduler_lab
from support.programs import Program, free_port
from support.scheduler_lab import RealServer

pytestmark = pytest.mark.integration

NAME = "compared"
PATIENCE = 180
COUNT = re.compile(r"scheduler_framework_extension_point_duration_seconds_count\{(.*)\} (\S+)")
CLAIM = "/api/v1/namespaces/default/persistentvolumeclaims/data"
MERGE = "application/merge-patch+json"
Counts = dict[tuple[str, str, str], int]
"""By extension point, status and profile."""


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    if not os.access(os.environ.get("KUBE_SCHEDULER", ""), os.X_OK):
        pytest.skip("no kube-scheduler: set KUBE_SCHEDULER to its binary")
    home = Path(tempfile.mkdtemp(prefix="corelane-km-"))
    try:
        with scheduler_lab.real(home) as made:
            yield made
    finally:
        shutil.rmtree(home, ignore_errors=True)


def page(url: str) -> str:
    trust = ssl._create_unverified_context()
    with urllib.request.urlopen(url, timeout=10, context=trust) as answer:
        return answer.read().decode()


def handled(text: str) -> dict[str, int]:
    """How many events of each name were handled."""
    found = re.findall(r'scheduler_event_handling_duration_seconds_count\{event="([^"]*)"\} (\S+)', text)
    return {name: int(float(number)) for name, number in found}


def counts(text: str) -> Counts:
    found: Counts = {}
    for labels, value in COUNT.findall(text):
        known = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        assert known.keys() == {"extension_point", "status", "profile"}
        found[known["extension_point"], known["status"], known["profile"]] = int(float(value))
    return found


class Cluster:
    """Three nodes of 8 CPUs, without corelane's objects, and pods of both schedulers in turn."""

    def __init__(self, client: KubeClient) -> None:
        self.client = client

    async def post(self, path: str, **body: Any) -> None:
        await self.client.raw("POST", path, body=json.dumps(body).encode())

    async def merge(self, path: str, **body: Any) -> None:
        await self.client.raw("PATCH", path, body=json.dumps(body).encode(), content_type=MERGE)

    async def nodes(self) -> None:
        amounts = {"cpu": "8", "memory": "16Gi", "pods": "110"}
        status = {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
        for name in ("n0", "n1", "n2"):
            labels = {"kubernetes.io/hostname": name}
            await self.post("/api/v1/nodes", metadata={"name": name, "labels": labels})
            await self.client.patch(Node, name, {"status": status}, subresource="status")
            await self.client.patch(Node, name, {"spec": {"taints": None}})
        await self.post(
            "/apis/storage.k8s.io/v1/storageclasses",
            metadata={"name": "local"},
            provisioner="kubernetes.io/no-provisioner",
            volumeBindingMode="WaitForFirstConsumer",
        )
        # Bindings of pods with this name are refused.
        root = "/apis/admissionregistration.k8s.io/v1"
        rule = {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["pods/binding"],
        }
        await self.post(
            f"{root}/validatingadmissionpolicies",
            metadata={"name": "deny"},
            spec={
                "matchConstraints": {"resourceRules": [rule]},
                "validations": [{"expression": "request.name != 'denied'"}],
            },
        )
        await self.post(
            f"{root}/validatingadmissionpolicybindings",
            metadata={"name": "deny"},
            spec={"policyName": "deny", "validationActions": ["Deny"]},
        )
        await self.enforced()

    async def enforced(self) -> None:
        """Wait until the server holds bindings to the policy, which takes it some seconds."""
        path = "/api/v1/namespaces/default/pods"
        container = {"name": "main", "image": "none"}
        await self.post(
            path, metadata={"name": "denied"}, spec={"schedulerName": "none", "containers": [container]}
        )
        target = {"metadata": {"name": "denied"}, "target": {"kind": "Node", "name": "n0"}}
        while True:
            try:
                await self.post(f"{path}/denied/binding?dryRun=All", **target)
            except APIError as error:
                assert "deny" in str(error), error
                break
            await asyncio.sleep(0.2)
        await self.delete("denied")

    async def pod(self, name: str, cpu: str = "100m", *, placed: bool = True, **spec: Any) -> None:
        """Create a pod, and wait until it has a node, or a condition that says that it has none."""
        requests = {"cpu": cpu, "memory": "16Mi"}
        container = {"name": "main", "image": "none", "resources": {"requests": requests}}
        whole = {"schedulerName": NAME, "terminationGracePeriodSeconds": 0, "containers": [container], **spec}
        await self.post("/api/v1/namespaces/default/pods", metadata={"name": name}, spec=whole)
        await self.until(name, (lambda pod: bool(pod.spec.node_name)) if placed else rejected)

    async def until(self, name: str, holds: Callable[[Pod], bool]) -> None:
        while not holds(await self.client.get(Pod, name, "default")):
            await asyncio.sleep(0.05)

    async def delete(self, *names: str) -> None:
        for name in names:
            await self.client.delete(Pod, name, namespace="default", grace_seconds=0)

    async def with_volume(self) -> None:
        """A pod whose claim waits for it; the controller that binds the claim is played here."""
        modes, size = ["ReadWriteOnce"], {"storage": "1Gi"}
        await self.post(
            CLAIM.rpartition("/")[0],
            metadata={"name": "data"},
            spec={"accessModes": modes, "storageClassName": "local", "resources": {"requests": size}},
        )
        anywhere = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}]
        await self.post(
            "/api/v1/persistentvolumes",
            metadata={"name": "disk"},
            spec={
                "capacity": size,
                "accessModes": modes,
                "storageClassName": "local",
                "local": {"path": "/disk"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": anywhere}},
            },
        )
        available = {"status": {"phase": "Available"}}
        await self.client.patch(PersistentVolume, "disk", available, subresource="status")
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
        creating = asyncio.create_task(self.pod("stores", volumes=[volume]))
        while (
            "claimRef"
            not in json.loads(await self.client.raw("GET", "/api/v1/persistentvolumes/disk"))["spec"]
        ):
            await asyncio.sleep(0.05)
        bound = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
        await self.merge(CLAIM, spec={"volumeName": "disk"}, metadata={"annotations": bound})
        await self.merge(f"{CLAIM}/status", status={"phase": "Bound"})
        await creating

    async def story(self) -> None:
        for number in range(12):
            await self.pod(f"fits-{number}")
        await self.pod("large", "64", placed=False)
        await self.pod("gated", placed=False, schedulingGates=[{"name": "example.com/wait"}])
        missing = {"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}
        await self.pod("missing", placed=False, volumes=[missing])
        await self.pod("denied", placed=False)
        await self.delete("denied")
        await self.with_volume()
        for number in range(3):
            await self.pod(f"fills-{number}", "7")
        # On an empty node it fits only once a pod of lower priority was evicted.
        await self.pod("important", "7", priorityClassName="system-node-critical")

    async def clear(self) -> None:
        await self.delete(*(pod.metadata.name for pod in (await self.client.list(Pod)).items))
        for path in (CLAIM, "/api/v1/persistentvolumes/disk"):
            await self.merge(path, metadata={"finalizers": None})
            await self.client.raw("DELETE", path)


def rejected(pod: Pod) -> bool:
    found = condition(pod.status.conditions, "PodScheduled")
    return found is not None and found.status == "False"


def command(kube: bool, config: Path, port: int) -> tuple[object, ...]:
    if not kube:
        options = (f"--config={config}", f"--port={port}", "--no-leader-elect")
        return (sys.executable, "-m", "corelane", "scheduler", *options)
    return (
        os.environ["KUBE_SCHEDULER"],
        f"--config={config}",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        f"--cert-dir={config.parent}",
        "--authorization-always-allow-paths=/metrics,/healthz",
    )


def measured(server: RealServer, home: Path, *, kube: bool) -> tuple[Counts, dict[str, int]]:
    """Let a scheduler carry out the story, and return what its metrics counted."""
    kubeconfig = server.kubeconfig(home / "kubeconfig")
    config = home / "scheduler.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "clientConnection": {"kubeconfig": str(kubeconfig)},
                "leaderElection": {"leaderElect": False},
                "profiles": [{"schedulerName": NAME}],
            }
        )
    )
    port = free_port()
    url = f"http{'s' if kube else ''}://127.0.0.1:{port}"

    async def main() -> tuple[Counts, dict[str, int]]:
        client = KubeClient.connect(kubeconfig)
        cluster = Cluster(client)
        try:
            async with asyncio.timeout(PATIENCE):
                if kube:
                    await cluster.nodes()
                await cluster.story()
                await asyncio.sleep(2)  # kube-scheduler records what it measured once a second.
                text = await asyncio.to_thread(page, f"{url}/metrics")
                await cluster.clear()
                return counts(text), handled(text)
        finally:
            await client.close()

    program = Program(home / f"scheduler-{kube}.log", *command(kube, config, port))
    try:
        program.wait_until(lambda: page(f"{url}/healthz"), 60)
        return asyncio.run(main())
    except BaseException:
        print(program.tail())
        raise
    finally:
        program.stop()


def test_the_same_pods_are_counted_at_the_same_points_with_the_same_status(
    server: RealServer, tmp_path: Path
) -> None:
    upstream, events = measured(server, tmp_path, kube=True)
    ours, own_events = measured(server, tmp_path, kube=False)
    # The nodes are made while kube-scheduler runs; pods' statuses are written at other times.
    own_events = {name: number for name, number in own_events.items() if not name.endswith("PodUpdate")}
    assert own_events.items() <= events.items()
    assert own_events["AssignedPodAdd"] > 15
    # Pods with equal answers for a batch have no counterpart; of PostFilter, upstream reports an error for a
    # pod that PreFilter rejected.
    left_out = {("Sign", "Success", NAME), ("PostFilter", "Error", NAME)}
    assert set(ours) == set(upstream) - left_out
    for point, status in (
        ("PreFilter", "UnschedulableAndUnresolvable"),
        ("Reserve", "Success"),
        ("Unreserve", "Success"),
        ("Permit", "Success"),
        ("PreBindPreFlight", "Skip"),
        ("PreBindPreFlight", "Success"),
        ("PreBind", "Success"),
        ("Bind", "Success"),
        ("Bind", "Error"),
        ("PostBind", "Success"),
    ):
        assert ours[point, status, NAME] == upstream[point, status, NAME], (point, status, ours, upstream)
