"""Pods as a node reads them: `kube`'s slim pod, and the fields that only who runs containers cares about."""

# ruff: noqa: D101 - the API reference documents its own structs

from typing import Any

from msgspec import field

from corelane.kube.meta import Wire
from corelane.kube.pod import Container, Pod, PodSpec

Tree = dict[str, Any]


class NameRef(Wire, frozen=True):
    name: str = ""
    optional: bool = False


class EnvFromSource(Wire, frozen=True):
    prefix: str = ""
    config_map_ref: NameRef | None = None
    secret_ref: NameRef | None = None


class VolumeMount(Wire, frozen=True):
    name: str = ""
    mount_path: str = ""


class SecurityContext(Wire, frozen=True):
    """Of a container, or of a whole pod."""

    run_as_user: int | None = None
    run_as_non_root: bool = False


class RunContainer(Container, frozen=True):
    env_from: tuple[EnvFromSource, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    volume_devices: tuple[Tree, ...] = ()
    liveness_probe: Tree | None = None
    readiness_probe: Tree | None = None
    startup_probe: Tree | None = None
    lifecycle: Tree | None = None
    security_context: SecurityContext | None = None


class RunSpec(PodSpec, frozen=True):
    containers: tuple[RunContainer, ...] = ()
    init_containers: tuple[RunContainer, ...] = ()
    ephemeral_containers: tuple[Tree, ...] = ()
    resource_claims: tuple[Tree, ...] = ()
    security_context: SecurityContext | None = None
    service_account_name: str = ""


class RunPod(Pod, frozen=True):
    spec: RunSpec = field(default_factory=RunSpec)

    def container(self, name: str) -> RunContainer:
        """The container of that name. Raises KeyError."""
        for container in (*self.spec.init_containers, *self.spec.containers):
            if container.name == name:
                return container
        raise KeyError(name)
