"""The sentences about a kubelet beside the agent: failed requests to it, and repairs of its state files."""

from collections.abc import Callable, Mapping
from typing import Final

from corelane.cpuset import format_list, named, verb
from corelane.reasons.codes import Code


def _untrusted(url: str, why: str, authority: str) -> str:
    by = f"by an authority in {authority}" if authority else "by an authority of this system"
    return (
        f"kubelet {url}: certificate not trusted ({why}), expected one signed {by}; give the kubelet's own "
        "authority with kubelet.caFile (/var/lib/kubelet/pki/kubelet.crt for a self-signed certificate), "
        "let the cluster sign it (serverTLSBootstrap: true in the kubelet's configuration), or skip the "
        "check with kubelet.insecureSkipTLSVerify: true"
    )


def _forbidden(url: str, path: str, resource: str) -> str:
    return (
        f"kubelet {url}: GET {path}: 403 Forbidden; grant the agent's account get on {resource} "
        "(kubelet 1.36, or 1.33 and later with feature gate KubeletFineGrainedAuthz), "
        "or get on nodes/proxy for older kubelets"
    )


def _pods(pods: int) -> str:
    return f"{pods} pod" if pods == 1 else f"{pods} pods"


def _held(pods: int, cpus: int) -> str:
    return f"{_pods(pods)} pinned by the kubelet keep CPUs {format_list(cpus)} until they end"


def _left(pods: int, cpus: int) -> str:
    return (
        f"{_pods(pods)} with exclusive CPUs {format_list(cpus)} from corelane still run, and the kubelet may "
        "allocate the same CPUs; set the kubelet's cpuManagerPolicy: none until these pods have ended"
    )


def _unknown(configz: str, file: str) -> str:
    causes = "; ".join(filter(None, (configz or "/configz was not asked", file or "no cpu_manager_state")))
    return (
        f"the kubelet's CPU manager policy is unknown ({causes}); "
        "let the agent read /configz, the kubelet's cpu_manager_state or its podresources socket"
    )


_FAULTS: Final[Mapping[Code, str | Callable[..., str]]] = {
    Code.KUBELET_UNREACHABLE: (
        "kubelet {0}: GET {1}: no answer ({2}); check that the kubelet runs and listens on this address"
    ),
    Code.KUBELET_SLOW: (
        "kubelet {0}: GET {1}: no whole answer within {2:g} s; check the load of the node and of the kubelet"
    ),
    Code.KUBELET_CERTIFICATE_UNTRUSTED: _untrusted,
    Code.KUBELET_CERTIFICATE_NAME: (
        "kubelet {0}: certificate is for another name ({1}); "
        "give the name in the certificate with kubelet.serverName"
    ),
    Code.KUBELET_CERTIFICATE_INVALID: "kubelet {0}: certificate invalid ({1}); renew it",
    Code.KUBELET_CREDENTIALS_UNREADABLE: (
        "credentials for the kubelet: {0}: {1}; give files that the agent can read"
    ),
    Code.KUBELET_UNAUTHORIZED: (
        "kubelet {0}: GET {1}: 401 Unauthorized; give a client certificate of the cluster's authority, or a "
        "token that the kubelet accepts (authentication.webhook.enabled: true in its configuration)"
    ),
    Code.KUBELET_FORBIDDEN: _forbidden,
    Code.KUBELET_ENDPOINT_OFF: (
        "kubelet {0}: GET {1}: {2}, the endpoint is not served; "
        "set enableDebuggingHandlers: true in the kubelet's configuration"
    ),
    Code.KUBELET_FAILED: "kubelet {0}: GET {1}: {2} {3}; see the kubelet's log",
    Code.KUBELET_MALFORMED: "kubelet {0}: GET {1}: answer invalid ({2}); check that a kubelet listens there",
}
_MODES: Final[Mapping[Code, str | Callable[..., str]]] = {
    Code.MODE_NO_KUBELET: "no kubelet on this node: corelane owns the cpusets",
    Code.MODE_KUBELET_NONE: "the kubelet's CPU manager policy is none ({0}): corelane owns the cpusets",
    Code.MODE_KUBELET_CPUS_HELD: _held,
    Code.MODE_KUBELET_STATIC: (
        "the kubelet's CPU manager policy is static ({0}): corelane allocates no exclusive CPUs, reports the "
        "kubelet's, and writes no cpuset of its containers"
    ),
    Code.MODE_EXCLUSIVE_PODS_LEFT: _left,
    Code.MODE_READ_ONLY: "--read-only: corelane reports and writes no cpuset",
    Code.MODE_IGNORE: "--ignore: corelane neither reports the kubelet's CPUs nor writes a cpuset",
    Code.MODE_NODE_POLICY_NONE: "node policy none: corelane reports and writes no cpuset",
    Code.MODE_POLICY_UNKNOWN: _unknown,
    Code.MODE_POLICIES_DIFFER: (
        "the kubelet's CPU manager policy is {0} by /configz, {1} by cpu_manager_state: corelane allocates "
        "no exclusive CPUs and writes no cpuset of its containers until both agree; a kubelet does not start "
        "with such a file: drain the node, remove the file, start the kubelet"
    ),
    Code.MODE_POLICY_UNRECOGNIZED: (
        "the kubelet's CPU manager policy {0!r} ({1}) is neither none nor static"
    ),
    Code.MODE_LAST_ANSWER: "last answer of /configz stays in effect: {0}",
    Code.MODE_MEMORY_STATIC: (
        "memory nodes (cpuset.mems) are not written: the kubelet's memory manager policy is Static"
    ),
    Code.MODE_MEMORY_UNKNOWN: (
        "memory nodes (cpuset.mems) are not written: the kubelet's memory manager policy is unknown"
    ),
}
SENTENCES: Final = {
    **{code: ("kubelet", phrase) for code, phrase in _FAULTS.items()},
    **{code: ("mode", phrase) for code, phrase in _MODES.items()},
}


_REPAIR: Final = "run `corelane state repair` (running pods keep their CPUs)"
_REMOVE: Final = "drain the node, then remove the file: the kubelet creates a new one"


def _lost(reserved: int, offline: int, others: int) -> str:
    parts = [f"{named(reserved)} {verb(reserved)} now reserved"] if reserved else []
    parts += [f"{named(offline)} {verb(offline)} not online"] if offline else []
    parts += [f"{named(others)} {verb(others, 'belongs', 'belong')} to another"] if others else []
    return ", ".join(parts)


def _dropped(reserved: int, offline: int, others: int, running: bool) -> str:
    lost = _lost(reserved, offline, others)
    before, after = ("", "left out, ") if running else ("not running, and ", "")
    return f"{before}{lost}: {after}the kubelet allocates again"


def _total(missing: int, gone: int) -> str:
    parts = [f"{named(missing)} {verb(missing)} missing in the file"] if missing else []
    parts += [f"{named(gone)} {verb(gone)} in the file, but not in the machine"] if gone else []
    return f"{', '.join(parts)}; {_REPAIR}"


_PHRASES: Final[Mapping[Code, str | Callable[..., str]]] = {
    Code.ENTRY_UNCHANGED: "running on these CPUs",
    Code.ENTRY_RUNNING: "running on {0}",
    Code.ENTRY_NOT_RUNNING: "not running, but its pod is still on the node",
    Code.ENTRY_LOST_CPUS: _lost,
    Code.ENTRY_REPLACED_CPUS: lambda cpus: f"replaced by {format_list(cpus)}",
    Code.ENTRY_WITHOUT_NAME: "name unknown: its CPUs stay allocated",
    Code.ENTRY_DROPPED: _dropped,
    Code.ENTRY_NOT_EXCLUSIVE: "ended, or runs in the shared pool",
    Code.ENTRY_POLICY_NONE: "policy none allocates no exclusive CPUs",
    Code.REMEDY_REPAIR: _REPAIR,
    Code.REMEDY_REPAIR_TOTAL: _total,
    Code.REMEDY_RESERVE_OTHERS: f"{_REPAIR}, or reserve CPUs of {{0}}",
    Code.REMEDY_REMOVE_STRICT: f"{_REPAIR}, or remove strict-cpu-reservation",
    Code.REMEDY_FREE_CPUS: (
        "start the kubelet without strict-cpu-reservation, reserve fewer CPUs, or end one of the pods; "
        "then run `corelane state repair`"
    ),
    Code.REMEDY_CONVERT: "run `corelane state convert --to v2`, which drops pod-level CPUs",
    Code.REMEDY_CONVERT_WITHOUT_GATE: "without the gate: run `corelane state convert --to v2`",
    Code.REMEDY_DRAIN_POD_LEVEL: "drain the pods with pod-level resources first",
    Code.REMEDY_REMOVE: _REMOVE,
    Code.REMEDY_REMOVE_WITHOUT_GATE: f"without the gate: {_REMOVE}",
    Code.REMEDY_MEMORY_POLICY: f"set memoryManagerPolicy: {{0}} again, or {_REMOVE}",
    Code.REMEDY_RESERVED_MEMORY: f"set reservedMemory to its earlier value if it changed, or {_REMOVE}",
    Code.REMEDY_REMOVE_UNUSED: (
        "no container has memory in the file: remove it, and the kubelet creates a new one; "
        "nothing needs to be drained"
    ),
    Code.REMEDY_RESERVE_MEMORY: (
        "make reservedMemory of all NUMA nodes together equal to kubeReserved.memory + "
        "systemReserved.memory + evictionHard memory.available (100Mi without evictionHard)"
    ),
    Code.REMEDY_MEMORY_GROUP: (
        "kubelets before 1.32 compare each NUMA node by itself, where memory of several nodes is assigned: "
        f"upgrade the kubelet to 1.32 or later, or {_REMOVE}"
    ),
    Code.REMEDY_UNKNOWN_FIELD: "correct its name ({0}), or remove it",
    Code.REMEDY_GIVE_RESERVATION: (
        "give --kubelet-config FILE, or --reserved-memory 0:memory=1Gi for each NUMA node"
    ),
}
STATE_FILE_SENTENCES: Final = {code: ("state-file", phrase) for code, phrase in _PHRASES.items()}
