"""Rules on security contexts: seccomp, AppArmor, sysctls."""

from collections.abc import Iterator

from corelane.embedded.apiserver import formats
from corelane.embedded.apiserver.codec import go_rendering
from corelane.embedded.apiserver.schema import container_spec as tables
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.validation import causes
from corelane.embedded.apiserver.validation.causes import child, item
from corelane.embedded.apiserver.validation.table_rules import Object, Scope, rule

_PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")
_LONGEST_PROFILE = 4095


@rule("seccomp")
def _seccomp(profile: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    kind, local = profile.get("type", ""), profile.get("localhostProfile")
    where = child(path, "localhostProfile")
    yield from _profile_type(kind, child(path, "type"), "type is required when seccompProfile is set")
    if kind == "Localhost":
        if local is None:
            yield causes.required(where, "must be set when seccomp type is Localhost")
        else:
            yield from causes.all_invalid(where, local, formats.relative_path(local))
    elif local is not None:
        shown = go_rendering.rendered(tables.SECCOMP_PROFILE, profile)
        yield causes.invalid(where, shown, "can only be set when seccomp type is Localhost")


def _profile_type(kind: str, path: str, missing: str) -> list[StatusCause]:
    if not kind:
        return [causes.required(path, missing)]
    return [] if kind in _PROFILES else [causes.not_supported(path, kind, _PROFILES)]


@rule("app-armor")
def _app_armor(profile: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    kind, local = profile.get("type", ""), profile.get("localhostProfile")
    where = child(path, "localhostProfile")
    if kind == "Localhost":
        yield from _local_profile(local, where)
    elif kind in _PROFILES and local is not None:
        yield causes.invalid(where, local, "can only be set when AppArmor type is Localhost")
    yield from _profile_type(kind, child(path, "type"), "type is required when appArmorProfile is set")


def _local_profile(local: str | None, path: str) -> Iterator[StatusCause]:
    if not local:
        yield causes.required(path, "must be set when AppArmor type is Localhost")
        return
    if local != local.strip():
        yield causes.invalid(path, local, "must not be padded with whitespace")
    if len(local) > _LONGEST_PROFILE:
        yield causes.too_long(path, _LONGEST_PROFILE)


@rule("share-process")
def _share_process(context: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    if scope.spec.get("shareProcessNamespace") and scope.spec.get("hostPID"):
        why = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield causes.invalid(child(path, "shareProcessNamespace"), True, why)


@rule("selinux-change")
def _selinux_change(context: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    """Upstream's gate SELinuxMount is off: only a pod that has a policy may change it to MountOption."""
    before = (scope.old or {}).get("spec", {}).get("securityContext", {}).get("seLinuxChangePolicy")
    policies = ("Recursive",) if before is None else ("MountOption", "Recursive")
    policy = context.get("seLinuxChangePolicy")
    if policy is not None and policy not in policies:
        yield causes.not_supported(child(path, "seLinuxChangePolicy"), policy, policies)


@rule("sysctls")
def _sysctls(context: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    seen: set[str] = set()
    for index, setting in enumerate(context.get("sysctls", ())):
        where, name = child(item(child(path, "sysctls"), index), "name"), setting.get("name", "")
        if not name:
            yield causes.required(where)
        elif formats.sysctl(name):
            yield from causes.all_invalid(where, name, formats.sysctl(name))
        elif name in seen:
            yield causes.duplicate(where, name)
        seen.add(name)
        yield from _host_sysctl(name, where, scope)


def _host_sysctl(name: str, path: str, scope: Scope) -> Iterator[StatusCause]:
    dotted = name.replace("/", ".")
    if scope.spec.get("hostNetwork") and dotted.startswith("net."):
        yield causes.invalid(path, name, "may not be specified when 'hostNetwork' is true")
    ipc = dotted.startswith(("kernel.shm", "kernel.msg", "fs.mqueue.")) or dotted == "kernel.sem"
    if scope.spec.get("hostIPC") and ipc:
        yield causes.invalid(path, name, "may not be specified when 'hostIPC' is true")
