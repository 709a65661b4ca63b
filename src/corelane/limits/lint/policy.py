"""The policy for manifests: by default CPU requests, memory limit = request, and no CPU limit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from fnmatch import fnmatchcase
from typing import Any, Final

from corelane.limits.lint import custom_resources, injectors
from corelane.limits.lint.custom_resources import CustomResource
from corelane.limits.lint.injectors import SidecarInjector

CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "cpuRequest": ("required", "optional"),
    "cpuLimit": ("never", "allowed", "equal-to-request"),
    "batchCpuLimit": ("allowed", "never"),
    "memoryLimit": ("equal-to-request", "required", "optional"),
}
FAIL_ON: Final = ("info", "warning", "error", "never")
_NEVER: Final = 99


class Severity(IntEnum):
    """How bad: `info` is worth knowing, `warning` costs time or safety, `error` much of it, or is refused."""

    INFO = 1
    WARNING = 2
    ERROR = 3

    def __str__(self) -> str:
        return self.name.lower()


class PolicyError(ValueError):
    """An invalid policy; the message names the field, its value, and the valid values."""


@dataclass(frozen=True, slots=True)
class Exemption:
    """Findings that the policy ignores. Patterns are globs; an empty one matches everything."""

    rule: str
    reason: str
    kind: str = ""
    namespace: str = ""
    name: str = ""
    container: str = ""

    def covers(self, rule: str, kind: str, namespace: str, name: str, container: str) -> bool:
        found = (rule, kind, namespace, name, container)
        wanted = (self.rule, self.kind, self.namespace, self.name, self.container)
        return all(not glob or fnmatchcase(text, glob) for text, glob in zip(found, wanted, strict=True))


@dataclass(frozen=True, slots=True)
class Policy:
    """The choices, named as in a policy file. `fail_on` is the least severity that fails a run."""

    cpu_request: str = "required"
    cpu_limit: str = "never"
    batch_cpu_limit: str = "allowed"
    memory_limit: str = "equal-to-request"
    exclusive_cpus: bool = False
    """Whether nodes allocate exclusive CPUs to Guaranteed containers (static CPU manager; the kubelet's
    default is none)."""
    node_cpus: int = 0
    """CPUs of the largest node that pods may land on: how far threads spread; 0 where unknown."""
    cfs_period_us: int = 100_000
    fail_on: int = int(Severity.WARNING)
    severities: Mapping[str, Severity | None] = field(default_factory=dict)
    """By rule; None switches it off."""
    exemptions: tuple[Exemption, ...] = ()
    custom_resources: tuple[CustomResource, ...] = ()
    """Kinds with containers beyond those that are known."""
    sidecar_injectors: tuple[SidecarInjector, ...] = ()
    """Injectors beyond those that are known."""


STATIC: Final = Policy(exclusive_cpus=True)
"""For advice, which sees what a pod uses and so can refute exclusive CPUs that nothing allocated."""


def severity(name: str) -> int:
    """The least severity that fails a run, by its name; `never` is above all. Raises PolicyError."""
    if name not in FAIL_ON:
        raise PolicyError(f"failOn: {name!r} is none of {', '.join(FAIL_ON)}")
    return _NEVER if name == "never" else int(Severity[name.upper()])


def from_mapping(tree: Any, rules: Iterable[str], base: Policy | None = None) -> Policy:
    """A policy from a file's values. Raises PolicyError."""
    if not isinstance(tree, dict):
        raise PolicyError("is not a mapping of settings, such as cpuLimit: never")
    policy, known = base or Policy(), frozenset(rules)
    for key, value in tree.items():
        if key in CHOICES:
            if value not in CHOICES[key]:
                raise PolicyError(f"{key}: {value!r} is none of {', '.join(CHOICES[key])}")
            change: dict[str, Any] = {_snake(key): str(value)}
            policy = replace(policy, **change)
        elif key in _READERS:
            policy = replace(policy, **_READERS[key](key, value, known))
        else:
            raise PolicyError(f"{key}: no such setting; there are {', '.join([*CHOICES, *_READERS])}")
    return policy


def _snake(key: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key)


def _exclusive(key: str, value: Any, known: frozenset[str]) -> dict[str, Any]:
    if not isinstance(value, bool):
        raise PolicyError(f"{key}: {value!r} is neither true nor false")
    return {"exclusive_cpus": value}


def _node_cpus(key: str, value: Any, known: frozenset[str]) -> dict[str, Any]:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise PolicyError(f"{key}: {value!r} is not a number of CPUs, such as 96 (0: unknown)")
    return {"node_cpus": value}


def _period(key: str, value: Any, known: frozenset[str]) -> dict[str, Any]:
    milliseconds = str(value).removesuffix("ms")
    if isinstance(value, bool) or not milliseconds.isdecimal() or not 1 <= int(milliseconds) <= 1000:
        raise PolicyError(f"{key}: {value!r} is not a period from 1ms to 1000ms, such as 100ms")
    return {"cfs_period_us": int(milliseconds) * 1000}


def _fail_on(key: str, value: Any, known: frozenset[str]) -> dict[str, Any]:
    return {"fail_on": severity(str(value))}


def _severities(key: str, value: Any, known: frozenset[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise PolicyError(f"{key}: {value!r} is not a mapping of rules to severities (cpu-limit: error)")
    return {
        "severities": {_rule(key, rule, known): _level(key, rule, level) for rule, level in value.items()}
    }


def _level(key: str, rule: str, level: Any) -> Severity | None:
    # YAML 1.1 reads a bare off as false.
    if level in ("off", False):
        return None
    if level not in ("info", "warning", "error"):
        raise PolicyError(f"{key}.{rule}: {level!r} is none of info, warning, error, off")
    return Severity[str(level).upper()]


def _rule(key: str, rule: Any, known: frozenset[str]) -> str:
    if not isinstance(rule, str) or rule not in known:
        raise PolicyError(f"{key}: there is no rule {rule!r}; corelane limits lint --rules lists them")
    return rule


def _custom(key: str, value: Any, known: frozenset[str]) -> dict[str, Any]:
    if not isinstance(value, list):
        raise PolicyError(f"{key}: {value!r} is not a list of kinds, each with pod or containers")
    return {"custom_resources": tuple(_kind(f"{key}[{i}]", one) for i, one in enumerate(value))}


def _kind(key: str, value: Any) -> CustomResource:
    try:
        return custom_resources.from_setting(value)
    except ValueError as error:
        raise PolicyError(f"{key}: {error}") from None


def _injectors(key: str, value: Any, known: frozenset[str]) -> dict[str, Any]:
    if not isinstance(value, list):
        raise PolicyError(f"{key}: {value!r} is not a list of injectors, each with pod or namespace")
    return {"sidecar_injectors": tuple(_injector(f"{key}[{i}]", one) for i, one in enumerate(value))}


def _injector(key: str, value: Any) -> SidecarInjector:
    try:
        return injectors.from_setting(value)
    except ValueError as error:
        raise PolicyError(f"{key}: {error}") from None


def _exemptions(key: str, value: Any, known: frozenset[str]) -> dict[str, Any]:
    if not isinstance(value, list):
        raise PolicyError(f"{key}: {value!r} is not a list of exemptions, each with a rule and a reason")
    return {"exemptions": tuple(_exemption(f"{key}[{i}]", one, known) for i, one in enumerate(value))}


def _exemption(key: str, value: Any, known: frozenset[str]) -> Exemption:
    names = [one.name for one in fields(Exemption)]
    if not isinstance(value, dict) or not set(value) <= set(names):
        raise PolicyError(f"{key}: {value!r} is not a mapping of {', '.join(names)}")
    texts = {name: str(text) for name, text in value.items() if name != "rule"}
    if not texts.get("reason", "").strip():
        raise PolicyError(f"{key}: has no reason: state why these findings are acceptable")
    return Exemption(_rule(f"{key}.rule", value.get("rule"), known), **texts)


_READERS: Final = {
    "exclusiveCPUs": _exclusive,
    "nodeCPUs": _node_cpus,
    "cfsPeriod": _period,
    "failOn": _fail_on,
    "severity": _severities,
    "ignore": _exemptions,
    "customResources": _custom,
    "sidecarInjectors": _injectors,
}
