"""Manifests of pods for a real kubelet: on the node's network, of the image in the tests' containerd."""

from support.busybox_image import IMAGE, SLEEP


def pod(name: str, *containers: dict, node: str, labels: dict[str, str] | None = None) -> dict:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels or {}},
        "spec": {
            "nodeName": node,
            "hostNetwork": True,
            "dnsPolicy": "Default",
            "enableServiceLinks": False,
            "automountServiceAccountToken": False,
            # No process of these pods needs to be asked to end.
            "terminationGracePeriodSeconds": 0,
            "containers": list(containers),
        },
    }


def guaranteed(name: str, cpus: int | str, memory: str = "32Mi") -> dict:
    """A container that has its requests as limits."""
    amounts = {"cpu": str(cpus), "memory": memory}
    return _container(name, {"requests": amounts, "limits": amounts})


def burstable(name: str, cpus: str = "100m") -> dict:
    return _container(name, {"requests": {"cpu": cpus}})


def best_effort(name: str) -> dict:
    return _container(name, {})


def _container(name: str, resources: dict) -> dict:
    return {
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": list(SLEEP),
        "resources": resources,
    }
