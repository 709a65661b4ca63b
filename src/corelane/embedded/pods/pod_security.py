"""What a pod asks of its isolation, and what of that local processes cannot keep.

They run as the agent's user, with its capabilities, on the machine's file system and in its namespaces. A
restriction that would not hold is a refusal, so that no pod runs with less protection than its manifest has;
a permission or a preference without effect is a warning. Fields are named as in the API.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from corelane.agent.allocation.records import StatusReason

Context = Mapping[str, Any]
"""A `securityContext`, of a pod or of a container; a field of both has the container's value."""

_PROFILES: Final = ("seccompProfile", "appArmorProfile")
_POD_WITHOUT_EFFECT: Final = (
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "fsGroup",
    "fsGroupChangePolicy",
    "seLinuxChangePolicy",
    "windowsOptions",
)
_REMEDY: Final = "remove it, or use a node with a container runtime"


def refusals(subject: str, own: Context | None, pods: Context | None) -> Iterator[StatusReason]:
    """Yield why a container would run with less protection than its security context says."""
    context = {**(pods or {}), **(own or {})}
    yield from _user_refusals(subject, context)
    broken = list(_broken(context))
    if broken:
        yield StatusReason(
            "SecurityContextUnsupported",
            f"{subject}: securityContext {', '.join(broken)}: not enforced for local processes, which have "
            f"the rights of the agent's user {os.geteuid()}; {_REMEDY}",
        )


def _user_refusals(subject: str, context: Context) -> Iterator[StatusReason]:
    user, group = os.geteuid(), os.getegid()
    for field, ours, what in (("runAsUser", user, "user"), ("runAsGroup", group, "group")):
        if context.get(field) not in (None, ours):
            yield StatusReason(
                "UserUnsupported",
                f"{subject}: {field} {context[field]} is not supported; "
                f"local processes run as the agent's {what} {ours}",
            )
    if context.get("runAsNonRoot") and user == 0:
        yield StatusReason(
            "UserUnsupported",
            f"{subject}: runAsNonRoot is set, but the agent and its local processes run as root",
        )


def _broken(context: Context) -> Iterator[str]:
    """Yield the restrictions that would not hold. An ordinary user's processes have no capabilities."""
    if context.get("readOnlyRootFilesystem"):
        yield "readOnlyRootFilesystem true"
    if context.get("allowPrivilegeEscalation") is False:
        yield "allowPrivilegeEscalation false"
    if (dropped := _capabilities(context, "drop")) and os.geteuid() == 0:
        yield f"capabilities.drop {' '.join(dropped)}"
    for field in _PROFILES:
        kind = (context.get(field) or {}).get("type", "Unconfined")
        if kind != "Unconfined":
            yield f"{field} {kind}"
    if context.get("seLinuxOptions"):
        yield "seLinuxOptions"


def pod_refusals(
    runtime_class: str | None, host_users: bool | None, context: Context | None
) -> Iterator[StatusReason]:
    """Yield the fields of a whole pod that local processes cannot keep."""
    if runtime_class:
        text = f"spec.runtimeClassName {runtime_class} is not supported: local processes have no runtime"
        yield StatusReason("RuntimeClassUnsupported", f"{text}; {_REMEDY}")
    if host_users is False:
        text = "spec.hostUsers false is not supported: local processes share the machine's user namespace"
        yield StatusReason("UserUnsupported", f"{text}; {_REMEDY}")
    if sysctls := [str(one.get("name")) for one in (context or {}).get("sysctls") or ()]:
        text = f"spec.securityContext.sysctls {' '.join(sysctls)}: not set for local processes, which share"
        yield StatusReason("SysctlsUnsupported", f"{text} the machine's; {_REMEDY}")


def without_effect(own: Context | None, pods: Context | None) -> Iterator[str]:
    """Yield the fields of a container's security context, and its pod's, that change nothing."""
    yield from (field for field in _POD_WITHOUT_EFFECT if (pods or {}).get(field) not in (None, []))
    context = own or {}
    if context.get("windowsOptions"):
        yield "windowsOptions"
    if os.geteuid() != 0:
        if context.get("privileged"):
            yield "privileged"
        if added := _capabilities(context, "add"):
            yield f"capabilities.add {' '.join(added)}"


def _capabilities(context: Context, change: str) -> list[str]:
    return [str(name) for name in (context.get("capabilities") or {}).get(change) or ()]
