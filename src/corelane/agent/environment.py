"""A container's environment and command line, as the kubelet makes them from its spec.

Sources first (`envFrom`), then `env` in order; `$(NAME)` refers to what is set by then, `$$` is a dollar,
and a reference to nothing stays as it is (upstream: `third_party/forked/golang/expansion`).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from corelane import quantity
from corelane.agent.manifest import RunContainer, RunPod
from corelane.kube.pod import EnvVar, KeySelector, ResourceFieldSelector
from corelane.runtime.base import RuntimeFailure

ConfigMaps = Mapping[str, Mapping[str, str] | None]
"""Config map name to its data; None where there is no such config map."""

_REFERENCE: Final = re.compile(r"\$(?:\$|\(([^)]*)\))")
_KEYED: Final = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


@dataclass(frozen=True, slots=True)
class Host:
    """What the environment may tell of the node; milliCPU and bytes that pods may have."""

    name: str
    ips: tuple[str, ...] = ()
    cpu: int = 0
    memory: int = 0


def config_maps(container: RunContainer) -> set[str]:
    """The names of the config maps that its environment needs."""
    keyed = (var.value_from.config_map_key_ref for var in container.env if var.value_from)
    whole = (source.config_map_ref for source in container.env_from)
    return {ref.name for ref in (*keyed, *whole) if ref is not None}


def command_line(container: RunContainer, env: Mapping[str, str]) -> tuple[str, ...]:
    """Entry point and arguments, references replaced."""
    return tuple(expand(part, env) for part in (*container.command, *container.args))


def expand(text: str, env: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by its value."""

    def replaced(found: re.Match[str]) -> str:
        name = found.group(1)
        return "$" if name is None else env.get(name, found.group())

    return _REFERENCE.sub(replaced, text)


def variables(pod: RunPod, container: RunContainer, host: Host, known: ConfigMaps) -> dict[str, str]:
    """Every variable of a container. Raises RuntimeFailure that says what is missing."""
    env = dict(_sourced(container, known))
    for var in container.env:
        value = _value(pod, container, var, host, known)
        if value is not None:
            env[var.name] = expand(value, env) if var.value_from is None else value
    return env


def _sourced(container: RunContainer, known: ConfigMaps) -> Iterator[tuple[str, str]]:
    for source in container.env_from:
        if source.config_map_ref is None:
            continue
        data = known.get(source.config_map_ref.name)
        if data is None and not source.config_map_ref.optional:
            raise _missing(f'configmap "{source.config_map_ref.name}" not found')
        for key, value in (data or {}).items():
            yield source.prefix + key, value


def _value(pod: RunPod, container: RunContainer, var: EnvVar, host: Host, known: ConfigMaps) -> str | None:
    source = var.value_from
    if source is None:
        return var.value
    if source.field_ref is not None:
        return _field(pod, source.field_ref.field_path, host)
    if source.resource_field_ref is not None:
        return _resource(pod, container, source.resource_field_ref, host)
    if source.config_map_key_ref is not None:
        return _keyed(source.config_map_key_ref, known)
    raise _missing(f"env {var.name}: corelane cannot resolve this valueFrom")


def _keyed(ref: KeySelector, known: ConfigMaps) -> str | None:
    data = known.get(ref.name)
    if data is not None and ref.key in data:
        return data[ref.key]
    if ref.optional:
        return None
    if data is None:
        raise _missing(f'configmap "{ref.name}" not found')
    raise _missing(f"couldn't find key {ref.key} in ConfigMap {ref.name}")


def _field(pod: RunPod, path: str, host: Host) -> str:
    keyed = _KEYED.fullmatch(path)
    if keyed:
        listed: dict[str, str] = getattr(pod.metadata, keyed[1])
        return listed.get(keyed[2], "")
    reader = _FIELDS.get(path)
    if reader is None:
        raise _missing(f"unsupported fieldPath: {path}")
    return reader(pod, host)


_FIELDS: Final[Mapping[str, Callable[[RunPod, Host], str]]] = {
    "metadata.name": lambda pod, _: pod.metadata.name,
    "metadata.namespace": lambda pod, _: pod.metadata.namespace,
    "metadata.uid": lambda pod, _: pod.metadata.uid,
    "spec.nodeName": lambda _, host: host.name,
    "spec.serviceAccountName": lambda pod, _: pod.spec.service_account_name,
    "status.hostIP": lambda _, host: host.ips[0] if host.ips else "",
    "status.hostIPs": lambda _, host: ",".join(host.ips),
    "status.podIP": lambda _, host: host.ips[0] if host.ips else "",
    "status.podIPs": lambda _, host: ",".join(host.ips),
}


def _resource(pod: RunPod, own: RunContainer, ref: ResourceFieldSelector, host: Host) -> str:
    """In units of the divisor, rounded up; a limit that was not set is what the node has."""
    part, _, resource = ref.resource.partition(".")
    if part not in ("requests", "limits") or resource not in ("cpu", "memory"):
        raise _missing(f"unsupported container resource: {ref.resource}")
    container = pod.container(ref.container_name) if ref.container_name else own
    listed = container.resources.limits if part == "limits" else container.resources.requests
    reader = quantity.milli if resource == "cpu" else quantity.value
    whole = {"cpu": host.cpu, "memory": host.memory}[resource] if part == "limits" else 0
    amount = reader(str(listed[resource])) if resource in listed else whole
    return str(-(-amount // (reader(str(ref.divisor or "1")) or reader("1"))))


def _missing(message: str) -> RuntimeFailure:
    return RuntimeFailure("CreateContainerConfigError", message)
