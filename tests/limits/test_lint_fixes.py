"""Every patch that lint gives ends its own finding, and all of them together end without any."""

import json
from copy import deepcopy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.limits.lint.findings import Finding
from corelane.limits.lint.policy import Policy, Severity
from support.manifests import findings

_AMOUNT = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(["100m", "0.5", "1", "1500m", "2"]),
        "memory": st.sampled_from(["512Mi", "1Gi"]),
    },
)
_THREADS = st.sampled_from([[], [{"name": "GOMAXPROCS", "value": "1"}]])
_CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {
            "image": st.sampled_from(["app", "openjdk:17"]),
            "env": _THREADS,
            "resources": st.fixed_dictionaries({"requests": _AMOUNT, "limits": _AMOUNT}),
        }
    ),
    min_size=1,
    max_size=2,
)
_POLICIES = st.builds(
    Policy,
    cpu_limit=st.sampled_from(["never", "equal-to-request"]),
    exclusive_cpus=st.booleans(),
)
_ROUNDS = 8


def manifest(containers: list[dict[str, Any]]) -> dict[str, Any]:
    named = [{"name": f"c{number}", **one} for number, one in enumerate(containers)]
    template = {"spec": {"containers": named}}
    return {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": {"name": "web"},
        "spec": {"template": template},
    }


def patched(tree: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """A strategic merge as the API server does it: null takes away, containers merge by name."""
    made = deepcopy(tree)
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        elif key == "containers":
            changes = {one["name"]: one for one in value}
            made[key] = [patched(one, changes.get(one["name"], {})) for one in made[key]]
        else:
            made[key] = patched(made.get(key, {}), value) if isinstance(value, dict) else value
    return made


def linted(tree: dict[str, Any], policy: Policy) -> list[Finding]:
    return findings(json.dumps(tree), policy=policy)


@settings(max_examples=120, deadline=None)
@given(_CONTAINERS, _POLICIES)
def test_a_patch_ends_the_finding_that_it_belongs_to(containers, policy):
    tree = manifest(containers)
    for one in linted(tree, policy):
        if one.patch:
            left = {(other.rule, other.container) for other in linted(patched(tree, one.patch), policy)}
            assert (one.rule, one.container) not in left, one.patch


@settings(max_examples=120, deadline=None)
@given(_CONTAINERS, _POLICIES)
def test_patches_come_to_an_end_and_leave_nothing_that_another_could_mend(containers, policy):
    tree = manifest(containers)
    for _ in range(_ROUNDS):
        patches = [one.patch for one in linted(tree, policy) if one.patch]
        if not patches:
            break
        tree = patched(tree, patches[0])
    left = [one for one in linted(tree, policy) if one.severity >= Severity.WARNING]
    assert not any(one.patch for one in left)
    assert {one.rule for one in left} <= _NEED_A_DECISION


_NEED_A_DECISION = {
    "no-cpu-request",
    "limit-below-request",
    "exclusive-cpus-lost",
    "memory-limit-missing",
    "fractional-cpu-limit",
}
"""How much to ask for, and which of two amounts was meant, nobody but the owner can say."""
