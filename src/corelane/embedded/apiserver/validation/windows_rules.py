"""Rules on the operating system of a pod, and on the options of Windows containers."""

import re
from collections.abc import Iterator

from corelane import names
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.validation import causes
from corelane.embedded.apiserver.validation.causes import child
from corelane.embedded.apiserver.validation.pod_rules import each_container
from corelane.embedded.apiserver.validation.table_rules import Object, Scope, rule

_LARGEST_CREDENTIALS = 64 * 1024  # bytes
_LONGEST_DOMAIN, _LONGEST_USER = 256, 104  # bytes
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NET_BIOS = re.compile(r'[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}', re.DOTALL)
_LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_DNS = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_DOTS_AND_SPACES = re.compile("[. ]+")
_UNUSABLE = re.compile(r'["/\\:;|=,+*?<>@\[\]]')

_FOREIGN = "cannot be set for a windows pod"
_FOREIGN_TO_PODS = (
    "securityContext.appArmorProfile",
    "securityContext.seLinuxOptions",
    "hostUsers",
    "hostPID",
    "hostIPC",
    "securityContext.seccompProfile",
    "securityContext.fsGroup",
    "securityContext.fsGroupChangePolicy",
    "securityContext.sysctls",
    "shareProcessNamespace",
    "securityContext.runAsUser",
    "securityContext.runAsGroup",
    "securityContext.supplementalGroups",
    "securityContext.supplementalGroupsPolicy",
    "securityContext.seLinuxChangePolicy",
)
_FALSE_IS_UNSET = {"hostPID", "hostIPC"}
_FOREIGN_TO_CONTAINERS = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
)


def windows_pod(spec: Object, path: str) -> Iterator[StatusCause]:
    """Refuse fields that apply to Linux only, in a pod with `os.name: windows` (`validateWindows`).

    A pod without a security context may have anything beside it.
    """
    if "securityContext" in spec:
        for name in _FOREIGN_TO_PODS:
            *above, last = name.split(".")
            value = (spec["securityContext"] if above else spec).get(last)
            if value is not None and not (name in _FALSE_IS_UNSET and not value):
                yield causes.forbidden(child(path, *name.split(".")), _FOREIGN)
    for container, where in each_container(spec, path):
        for name in _FOREIGN_TO_CONTAINERS:
            if container.get("securityContext", {}).get(name) is not None:
                yield causes.forbidden(child(where, "securityContext", name), _FOREIGN)


@rule("os")
def _os(spec: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    name = spec["os"].get("name", "") if "os" in spec else None
    if name == "":
        yield causes.required(child(path, "os", "name"))
    elif name == "linux":
        yield from _linux(spec, path)
    elif name == "windows":
        yield from windows_pod(spec, path)
    elif name is not None:
        yield causes.not_supported(child(path, "os"), name, ("linux", "windows"))


def _linux(spec: Object, path: str) -> Iterator[StatusCause]:
    for holder, where in ((spec, path), *each_container(spec, path)):
        if "windowsOptions" in holder.get("securityContext", {}):
            spot = child(where, "securityContext", "windowsOptions")
            yield causes.forbidden(spot, "windows options cannot be set for a linux pod")


@rule("host-process")
def _host_process(spec: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    """Containers run as processes of the host all of them or none (`validateWindowsHostProcessPod`)."""
    whole = _of_host(spec)
    containers = list(each_container(spec, path))
    for container, where in containers:
        own = _of_host(container)
        if whole is not None and own is not None and own != whole:
            why = f"pod hostProcess value must be identical if both are specified, was {causes.shown(whole)}"
            yield causes.invalid(child(where, "securityContext", "windowsOptions", "hostProcess"), own, why)
    own_or_whole = [
        _of_host(container) if _of_host(container) is not None else whole for container, _ in containers
    ]
    if not any(own_or_whole):
        return
    if not all(own_or_whole):
        why = "If pod contains any hostProcess containers then all containers must be HostProcess containers"
        yield causes.invalid(path, "", why)
    if not spec.get("hostNetwork"):
        why = "hostNetwork must be true if pod contains any hostProcess containers"
        yield causes.invalid(child(path, "hostNetwork"), False, why)


def _of_host(holder: Object) -> bool | None:
    found: bool | None = holder.get("securityContext", {}).get("windowsOptions", {}).get("hostProcess")
    return found


@rule("windows-options")
def _windows_options(options: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    name, credentials, user = map(
        options.get, ("gmsaCredentialSpecName", "gmsaCredentialSpec", "runAsUserName")
    )
    if name is not None:
        yield from causes.all_invalid(child(path, "gmsaCredentialSpecName"), name, names.dns_subdomain(name))
    if credentials is not None:
        where = child(path, "gmsaCredentialSpec")
        yield from causes.all_invalid(where, credentials, _credential_faults(credentials))
    if user is not None:
        yield from causes.all_invalid(child(path, "runAsUserName"), user, _user_faults(user))


def _credential_faults(text: str) -> list[str]:
    if not text:
        return ["gmsaCredentialSpec cannot be an empty string"]
    return (
        ["gmsaCredentialSpec size must be under 64 KiB"] if len(text.encode()) > _LARGEST_CREDENTIALS else []
    )


def _user_faults(text: str) -> list[str]:
    if not text:
        return ["runAsUserName cannot be an empty string"]
    if _CONTROL.search(text):
        return ["runAsUserName cannot contain control characters"]
    *domains, user = text.split("\\")
    if len(domains) > 1:
        return ["runAsUserName cannot contain more than one backslash"]
    return [f"runAsUserName's {fault}" for fault in (*_domain_faults(domains), *_account_faults(user))]


def _domain_faults(domains: list[str]) -> Iterator[str]:
    for domain in domains:
        if len(domain.encode()) >= _LONGEST_DOMAIN:
            yield f"Domain length must be under {_LONGEST_DOMAIN} characters"
        if not _NET_BIOS.fullmatch(domain) and not _DNS.fullmatch(domain):
            yield "Domain doesn't match the NetBios nor the DNS format"


def _account_faults(user: str) -> Iterator[str]:
    if not user:
        yield "User cannot be empty"
    elif len(user.encode()) > _LONGEST_USER:
        yield f"User length must not be longer than {_LONGEST_USER} characters"
    if _DOTS_AND_SPACES.fullmatch(user):
        yield "User cannot contain only periods or spaces"
    if _UNUSABLE.search(user):
        yield 'User cannot contain the following characters: "/\\:;|=,+*?<>@[]'
