"""Functions that the schema tables name: defaults that depend on more than their field, and formats.

A format's function returns what is wrong with a value; [] is valid. The sums and maxima of resource lists
over the containers of a pod, by upstream's rules, serve the defaults and the validation of resources.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from corelane import names, quantity
from corelane.embedded.apiserver.stored_objects import Object
from corelane.quantity import Quantity

Amounts = dict[str, "Quantity"]
_POD_LEVEL = ("cpu", "memory")
_WORD = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST_PART = "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = rf"(?:{_HOST_PART}(?:\.{_HOST_PART})*(?::[0-9]+)?/)?"
_TAG = r"(?::(?P<tag>\w[\w.-]{0,127}))?"
_DIGEST = r"(?P<digest>@[A-Za-z][\w+.-]*:[0-9a-fA-F]{32,})?"
_IMAGE = re.compile(rf"{_HOST}{_WORD}(?:/{_WORD})*{_TAG}{_DIGEST}", re.ASCII)
_LONGEST_IMAGE = 1024
_SOURCELESS = {"name"}
_CONFIG_KEY = "[-._a-zA-Z0-9]{1,253}"
_ENV_NAME = "[ -<>-~]+"
_PERCENT = "[0-9]+%"
_REASON = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
PATTERNS: Mapping[str, str] = {
    "dns-label": names.LABEL,
    "dns-subdomain": names.SUBDOMAIN,
    "config-key": _CONFIG_KEY,
    "env-name": _ENV_NAME,
    "reason": _REASON,
}
"""Formats that a regular expression describes well enough for a reader of OpenAPI."""


def parsed(amounts: Mapping[str, str] | None) -> Amounts:
    """A resource list with its quantities read."""
    return {name: quantity.parse(text) for name, text in (amounts or {}).items()}


def is_huge_page(name: str) -> bool:
    return name.startswith("hugepages-")


def is_pod_level(name: str) -> bool:
    """Whether a pod, and not only a container, may ask for the resource (KEP-2837)."""
    return name in _POD_LEVEL or is_huge_page(name)


def containers(pod: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The pod's containers, then its init containers."""
    spec = pod.get("spec", {})
    yield from spec.get("containers") or ()
    yield from spec.get("initContainers") or ()


def aggregated(pod: Mapping[str, Any], column: str) -> dict[str, str]:
    """Return what the pod's containers need together: `column` is "requests" or "limits".

    The larger of the sum over containers and sidecars, and of each init container with the sidecars started
    before it (KEP-753; component-helpers' `AggregateContainerRequests`).
    """
    spec = pod.get("spec", {})
    total: Amounts = {}
    for container in spec.get("containers") or ():
        _add(total, _amounts(container, column))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        own = _amounts(container, column)
        if container.get("restartPolicy") == "Always":
            _add(total, own)
            _add(sidecars, own)
            own = dict(sidecars)
        else:
            _add(own, sidecars)
        _raise_to(peak, own)
    _raise_to(total, peak)
    return {name: amount.text for name, amount in total.items()}


def _amounts(container: Mapping[str, Any], column: str) -> Amounts:
    return parsed(container.get("resources", {}).get(column))


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        before = total.get(name)
        if before is None:
            total[name] = amount
        else:
            form = before.format if before.nano else amount.format
            total[name] = quantity.of_nano(before.nano + amount.nano, form)


def _raise_to(total: Amounts, floor: Amounts) -> None:
    for name, amount in floor.items():
        if name not in total or amount.nano > total[name].nano:
            total[name] = amount


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
    for container in containers(pod):
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
        summed = aggregated(pod, "requests")
        common = {name: text for name, text in summed.items() if name in {"cpu", "memory"}}
        limits = {name: text for name, text in own["limits"].items() if is_pod_level(name)}
        filled = {**limits, **common, **requests}
        if filled:
            own["requests"] = filled


def _pod_level_huge_pages(pod: Object, own: Object) -> None:
    if not own.get("limits") and not own.get("requests"):
        return
    summed = aggregated(pod, "limits")
    missing = {
        name: text
        for name, text in summed.items()
        if is_huge_page(name) and name not in own.get("requests", {})
    }
    if missing:
        own["limits"] = {**missing, **own.get("limits", {})}


def host_network_ports(pod: Object) -> None:
    """On the host's network a container's port is the host's port."""
    if not pod["spec"].get("hostNetwork"):
        return
    for container in containers(pod):
        for port in container.get("ports", ()):
            if not port.get("hostPort") and port.get("containerPort"):
                port["hostPort"] = port["containerPort"]


def grace_period(pod: Object) -> None:
    """A negative grace period means one second."""
    if pod["spec"].get("terminationGracePeriodSeconds", 0) < 0:
        pod["spec"]["terminationGracePeriodSeconds"] = 1


def config_key(text: str) -> list[str]:
    """The name of a value in a ConfigMap or Secret: it becomes the name of a file."""
    if names.matches(_CONFIG_KEY, text) and text != "." and not text.startswith(".."):
        return []
    return ["must be 1 to 253 letters, digits, '-', '_' and '.', other than '.' and not starting with '..'"]


def _pattern(pattern: str, rule: str) -> Callable[[str], list[str]]:
    """Return a format's function from a regular expression and its description."""
    return lambda text: [] if names.matches(pattern, text) else [rule]


port_name = _pattern(
    "(?=.*[a-z])(?!.*--)[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?",
    "must be at most 15 lower-case letters, digits and single '-', with a letter and no '-' at the ends",
)


def port_or_name(value: int | str) -> list[str]:
    if isinstance(value, str):
        return port_name(value)
    return [] if 1 <= value <= 65535 else ["must be between 1 and 65535"]


def count_or_percentage(value: int | str) -> list[str]:
    """A number that is not negative, or a whole number of per cent up to 100."""
    if isinstance(value, int):
        return [] if value >= 0 else ["must be at least 0"]
    if names.matches(_PERCENT, value) and len(value.lstrip("0")) <= 4 and int(value[:-1]) <= 100:
        return []
    return ["must be a whole number of per cent from 0% to 100%"]


def generated_name(text: str) -> list[str]:
    """A name that something may be put after."""
    return names.dns_subdomain(names.name_prefix(text))


def trimmed(text: str) -> list[str]:
    return [] if text == text.strip() else ["must not start or end with white space"]


def no_backsteps(text: str) -> list[str]:
    return ["must not contain '..'"] if ".." in text.split("/") else []


def local_path(text: str) -> list[str]:
    """A relative path that does not begin with two dots, which atomic writers keep for themselves."""
    if text.startswith(("/", "..")):
        return ["must be a relative path that does not start with '..'"]
    return no_backsteps(text)


FORMATS: Mapping[str, Callable[[Any], list[str]]] = {
    "dns-label": names.dns_label,
    "dns-subdomain": names.dns_subdomain,
    "generated-name": generated_name,
    "qualified-name": names.qualified_name,
    "label-value": names.label_value,
    "config-key": config_key,
    "env-name": _pattern(_ENV_NAME, "must be printable ASCII characters other than '='"),
    "port-name": port_name,
    "port-or-name": port_or_name,
    "count-or-percentage": count_or_percentage,
    "reason": _pattern(
        _REASON,
        "must start with a letter, go on with letters, digits, '_', ',' and ':', not end with ',' or ':'",
    ),
    "trimmed": trimmed,
    "no-backsteps": no_backsteps,
    "local-path": local_path,
}
