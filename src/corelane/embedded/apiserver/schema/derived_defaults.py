"""Defaults that depend on more than the field they fill: named in the rows and records of the tables."""

import re
from typing import Any

from corelane.embedded.apiserver import pod_amounts

Object = dict[str, Any]

_WORD = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST_PART = "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = rf"(?:{_HOST_PART}(?:\.{_HOST_PART})*(?::[0-9]+)?/)?"
_TAG = r"(?::(?P<tag>\w[\w.-]{0,127}))?"
_DIGEST = r"(?P<digest>@[A-Za-z][\w+.-]*:[0-9a-fA-F]{32,})?"
_IMAGE = re.compile(rf"{_HOST}{_WORD}(?:/{_WORD})*{_TAG}{_DIGEST}", re.ASCII)
_LONGEST_IMAGE = 1024
_SOURCELESS = {"name"}


def image_pull_policy(container: Object) -> str:
    """Always for the tag `latest`, said or implied."""
    image = container.get("image", "")
    parts = _IMAGE.fullmatch(image) if len(image) <= _LONGEST_IMAGE else None
    if not parts:
        return "IfNotPresent"
    tag = parts["tag"] or ("" if parts["digest"] else "latest")
    return "Always" if tag == "latest" else "IfNotPresent"


def empty_dir(volume: Object) -> None:
    """A volume that names no source is an empty directory."""
    if not volume.keys() - _SOURCELESS:
        volume["emptyDir"] = {}


def namespace_label(namespace: Object) -> None:
    """Every namespace can be selected by its own name."""
    name = namespace.get("metadata", {}).get("name", "")
    if name:
        namespace["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name


def node_allocatable(status: Object) -> None:
    if "allocatable" not in status and "capacity" in status:
        status["allocatable"] = dict(status["capacity"])


def pod_cidrs(spec: Object) -> None:
    """The singular field and the first of the plural one are the same; the singular one wins."""
    first = spec.get("podCIDR")
    if first and (not spec.get("podCIDRs") or spec["podCIDRs"][0] != first):
        spec["podCIDRs"] = [first]
    if spec.get("podCIDRs"):
        spec["podCIDR"] = spec["podCIDRs"][0]


def pod_ips(status: Object) -> None:
    """Align `podIP` and `podIPs`, as `pod_cidrs`."""
    first = status.get("podIP")
    if first and (not status.get("podIPs") or status["podIPs"][0].get("ip") != first):
        status["podIPs"] = [{"ip": first}]
    if status.get("podIPs"):
        status["podIP"] = status["podIPs"][0]["ip"]


def service_account(spec: Object) -> None:
    """`serviceAccount` is the old name of `serviceAccountName`."""
    name = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if name:
        spec["serviceAccountName"] = spec["serviceAccount"] = name


def requests_from_limits(pod: Object) -> None:
    """Set the request of a resource that has only a limit to the limit."""
    for container in pod_amounts.containers(pod):
        resources = container["resources"]
        if "limits" in resources:
            resources["requests"] = {**resources["limits"], **resources.get("requests", {})}


def pod_level_resources(pod: Object) -> None:
    """Requests and huge-page limits of the pod as a whole, from its containers (KEP-2837)."""
    own = pod["spec"].get("resources")
    if own is None:
        return
    _pod_level_huge_pages(pod, own)
    if own.get("limits"):
        requests = own.get("requests", {})
        summed = pod_amounts.aggregated(pod, "requests")
        common = {name: text for name, text in summed.items() if name in {"cpu", "memory"}}
        limits = {name: text for name, text in own["limits"].items() if pod_amounts.is_pod_level(name)}
        filled = {**limits, **common, **requests}
        if filled:
            own["requests"] = filled


def _pod_level_huge_pages(pod: Object, own: Object) -> None:
    if not own.get("limits") and not own.get("requests"):
        return
    summed = pod_amounts.aggregated(pod, "limits")
    missing = {
        name: text
        for name, text in summed.items()
        if pod_amounts.is_huge_page(name) and name not in own.get("requests", {})
    }
    if missing:
        own["limits"] = {**missing, **own.get("limits", {})}


def host_network_ports(pod: Object) -> None:
    """On the host's network a container's port is the host's port."""
    if not pod["spec"].get("hostNetwork"):
        return
    for container in pod_amounts.containers(pod):
        for port in container.get("ports", ()):
            if not port.get("hostPort") and port.get("containerPort"):
                port["hostPort"] = port["containerPort"]


def grace_period(pod: Object) -> None:
    """A negative grace period means one second."""
    if pod["spec"].get("terminationGracePeriodSeconds", 0) < 0:
        pod["spec"]["terminationGracePeriodSeconds"] = 1
