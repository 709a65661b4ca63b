"""The sentences about a kubelet beside the agent: why it could not be asked, and what the agent may do."""

from collections.abc import Callable, Mapping
from typing import Final

from corelane.cpuset import format_list
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
