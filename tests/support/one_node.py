"""A cluster of one real node: pods are made by kubectl, and their CPUs read from the kernel."""

import json
import time
from dataclasses import dataclass

from corelane.cpuset import CPUSet
from support.containerd import Containerd
from support.cri_pods import process_cgroup
from support.kubectl import Kubectl
from support.programs import wait_for
from support.real_cluster import ControlPlane
from support.real_kubelet import RECONCILE_SECONDS, Kubelet

PATIENCE = 120.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """An API server, a kubelet, a containerd."""

    plane: ControlPlane
    node: Kubelet
    runtime: Containerd
    kubectl: Kubectl

    def apply(self, *manifests: dict) -> None:
        for manifest in manifests:
            self.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def delete(self, *pods: str) -> None:
        self.kubectl("delete", "pod", *pods, "--grace-period=0", "--force", "--wait=false")

    def pods(self) -> dict[str, dict]:
        """All pods of the default namespace by name."""
        return {pod["metadata"]["name"]: pod for pod in self.kubectl.json("get", "pods")["items"]}

    def run(self, *manifests: dict) -> dict[str, dict]:
        """Make pods, and return their objects once all of them run."""
        self.apply(*manifests)
        names = {manifest["metadata"]["name"] for manifest in manifests}

        def running() -> dict[str, dict] | None:
            pods = {name: pod for name, pod in self.pods().items() if name in names}
            states = {name: pod["status"].get("phase") for name, pod in pods.items()}
            return pods if states == dict.fromkeys(names, "Running") else None

        return wait_for(f"pods {', '.join(sorted(names))} run", running, PATIENCE)

    def container(self, pod: str, name: str = "app") -> str:
        """The id of a pod's running container, "" where it does not run."""
        for status in self.pods().get(pod, {}).get("status", {}).get("containerStatuses", []):
            if status["name"] == name and "running" in status["state"]:
                return status["containerID"].partition("://")[2]
        return ""

    def cpus(self, pod: str, name: str = "app") -> CPUSet | None:
        """The CPUs in effect for a running container, as the kernel has them; None where it does not run."""
        container = self.container(pod, name)
        return self.effective(container) if container else None

    def effective(self, container: str) -> CPUSet:
        """The CPUs in effect for a container, without asking the API server."""
        group = process_cgroup(self.runtime.pid(container))
        files = (group / file for file in ("cpuset.cpus.effective", "cpuset.effective_cpus"))
        return CPUSet.parse(next(file for file in files if file.exists()).read_text().strip())

    def expect_cpus(self, expected: dict[str, CPUSet], seconds: float = PATIENCE) -> None:
        """Wait until these pods' containers `app` have these CPUs in effect."""

        def agrees() -> bool:
            return {pod: self.cpus(pod) for pod in expected} == expected

        wait_for(f"CPUs of pods are {expected}", agrees, seconds)

    def wait_phase(self, pod: str, phase: str) -> None:
        wait_for(f"pod {pod} is {phase}", lambda: self.pods()[pod]["status"].get("phase") == phase, PATIENCE)

    def wait_quota(self, pod: str, quota_us: int) -> None:
        """Wait for a CFS quota in the runtime's record of a container."""

        def agrees() -> bool:
            return self.runtime.recorded_cpu(self.container(pod)).get("quota") == quota_us

        wait_for(f"quota of pod {pod} is {quota_us} us", agrees, PATIENCE)

    def outlast_reconciles(self) -> None:
        """Let the kubelet's CPU manager reconcile at least twice."""
        time.sleep(3 * RECONCILE_SECONDS)

    def forget_pods(self) -> None:
        """Delete every pod at once, those of files (their mirrors) as well, and wait until none runs."""
        self.kubectl("delete", "pod", "--all", "--grace-period=0", "--force")
        wait_for("the pods' containers are gone", lambda: not self._runs_any(), PATIENCE)

    def _runs_any(self) -> list:
        running = {1: {2: {1: 1}}}  # filter: state: CONTAINER_RUNNING
        return self.runtime.call("ListContainers", running).get(1, [])
