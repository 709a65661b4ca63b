"""A container's environment and command line, made from its spec as the kubelet does.

First the sources (`envFrom`), then `env` in order; `$(NAME)` refers to a variable set before, `$$` is a
dollar, and a reference to an unset name stays unchanged (upstream: `third_party/forked/golang/expansion`).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from corelane import quantity
from corelane.embedded.pods.pod_manifest import RunContainer, RunPod
from corelane.kube.pod import EnvVar, KeySelector, ResourceFieldSelector
from corelane.runtime.base import RuntimeFailure

ConfigMaps = Mapping[str, Mapping[str, str] | None]
"""Config map name to its data; None where there is no such config map."""

_REFERENCE: Final = re.compile(r"\$(?:\$|\(([^)]*)\))")
_KEYED: Final = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


@dataclass(frozen=True, slots=True)
class NodeFields:
    """Fields of the node that an environment may reference; allocatable milliCPU and bytes."""

    name: str
    ips: tuple[str, ...] = ()
    cpu: int = 0
    memory: int = 0


def config_maps(container: RunContainer) -> set[str]:
    """Return the names of the config maps that the environment references."""
    keyed = (var.value_from.config_map_key_ref for var in container.env if var.value_from)
    whole = (source.config_map_ref for source in container.env_from)
    return {ref.name for ref in (*keyed, *whole) if ref is not None}


def command_line(container: RunContainer, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return entry point and arguments, with references expanded."""
    return tuple(expand(part, env) for part in (*container.command, *container.args))


def expand(text: str, env: Mapping[str, str]) -> str:
    """Replace each `$(NAME)` by the value of that variable."""

    def replaced(match: re.Match[str]) -> str:
        name = match.group(1)
        return "$" if name is None else env.get(name, match.group())

    return _REFERENCE.sub(replaced, text)


def variables(pod: RunPod, container: RunContainer, node: NodeFields, maps: ConfigMaps) -> dict[str, str]:
    """Return all variables of a container. Raises RuntimeFailure for a missing or unsupported source."""
    env = dict(_sourced(container, maps))
    for var in container.env:
        value = _value(pod, container, var, node, maps)
        if value is not None:
            env[var.name] = expand(value, env) if var.value_from is None else value
    return env


def _sourced(container: RunContainer, maps: ConfigMaps) -> Iterator[tuple[str, str]]:
    for source in container.env_from:
        if source.config_map_ref is None:
            continue
        data = maps.get(source.config_map_ref.name)
        if data is None and not source.config_map_ref.optional:
            raise _missing(f'configmap "{source.config_map_ref.name}" not found')
        for key, value in (data or {}).items():
            yield source.prefix + key, value


def _value(
    pod: RunPod, container: RunContainer, var: EnvVar, node: NodeFields, maps: ConfigMaps
) -> str | None:
    source = var.value_from
    if source is None:
        return var.value
    if source.field_ref is not None:
        return _field(pod, source.field_ref.field_path, node)
    if source.resource_field_ref is not None:
        return _resource(pod, container, source.resource_field_ref, node)
    if source.config_map_key_ref is not None:
        return _keyed(source.config_map_key_ref, maps)
    raise _missing(f"env {var.name}: corelane cannot resolve this valueFrom")


def _keyed(ref: KeySelector, maps: ConfigMaps) -> str | None:
    data = maps.get(ref.name)
    if data is not None and ref.key in data:
        return data[ref.key]
    if ref.optional:
        return None
    if data is None:
        raise _missing(f'configmap "{ref.name}" not found')
    raise _missing(f"couldn't find key {ref.key} in ConfigMap {ref.name}")


def _field(pod: RunPod, path: str, node: NodeFields) -> str:
    keyed = _KEYED.fullmatch(path)
    if keyed:
        values: dict[str, str] = getattr(pod.metadata, keyed[1])
        return values.get(keyed[2], "")
    reader = _FIELDS.get(path)
    if reader is None:
        raise _missing(f"unsupported fieldPath: {path}")
    return reader(pod, node)


_FIELDS: Final[Mapping[str, Callable[[RunPod, NodeFields], str]]] = {
    "metadata.name": lambda pod, _: pod.metadata.name,
    "metadata.namespace": lambda pod, _: pod.metadata.namespace,
    "metadata.uid": lambda pod, _: pod.metadata.uid,
    "spec.nodeName": lambda _, node: node.name,
    "spec.serviceAccountName": lambda pod, _: pod.spec.service_account_name,
    "status.hostIP": lambda _, node: node.ips[0] if node.ips else "",
    "status.hostIPs": lambda _, node: ",".join(node.ips),
    "status.podIP": lambda _, node: node.ips[0] if node.ips else "",
    "status.podIPs": lambda _, node: ",".join(node.ips),
}


def _resource(pod: RunPod, own: RunContainer, ref: ResourceFieldSelector, node: NodeFields) -> str:
    """Return a resource in units of the divisor, rounded up; an unset limit is the node's allocatable."""
    part, _, resource = ref.resource.partition(".")
    if part not in ("requests", "limits") or resource not in ("cpu", "memory"):
        raise _missing(f"unsupported container resource: {ref.resource}")
    try:
        container = pod.container(ref.container_name) if ref.container_name else own
    except KeyError:
        raise _missing(f"resourceFieldRef: the pod has no container {ref.container_name!r}") from None
    amounts = container.resources.limits if part == "limits" else container.resources.requests
    reader = quantity.milli if resource == "cpu" else quantity.value
    default = {"cpu": node.cpu, "memory": node.memory}[resource] if part == "limits" else 0
    amount = reader(str(amounts[resource])) if resource in amounts else default
    divisor = reader(str(ref.divisor or "1")) or reader("1")
    if divisor < 0:
        raise _missing(f"resourceFieldRef: divisor {ref.divisor} is negative")
    return str(-(-amount // divisor))


def _missing(message: str) -> RuntimeFailure:
    return RuntimeFailure("CreateContainerConfigError", message)
