"""What lint proposes: remedies that hold when they are applied, and amounts as people read them."""

import pytest

from corelane.limits.lint.findings import ms
from corelane.limits.lint.policy import Policy
from support.manifests import amounts, container, limit_range, only, rules, workload


@pytest.mark.parametrize(
    ("image", "more", "offered"),
    [
        ("nginx:1.27", "", True),
        ("nginx:1.27", ", command: [nginx]", False),
        ("haproxy:3.0", "", False),
    ],
)
def test_what_reads_the_limit_is_the_remedy_only_where_the_limit_stays(image, more, offered):
    one = container(amounts("1", limit="1"), more=more).replace("image: app", f"image: '{image}'")
    fix = only("threads-from-node", workload(one)).fix
    first, _, second = fix.partition("; if the limit has to stay, ")
    assert first.endswith(", and drop the limit")
    assert "AUTOTUNE" not in first
    assert ("AUTOTUNE=1" in second) is offered


@pytest.mark.parametrize("request_", ["128Mi", "", "0"])
def test_a_missing_memory_limit_is_not_to_be_the_request(request_):
    """The request is not the peak: a limit of its size could end what runs well without one."""
    text = workload(container(amounts("1", request_, memory_limit="")))
    found = only("memory-limit-missing", text)
    said = f" (it requests {request_})" if request_ else ""
    assert found.fix == f"set requests.memory and limits.memory to what it needs at its peak{said}"
    assert found.patch is None
    required = only("memory-limit-missing", text, policy=Policy(memory_limit="required"))
    assert required.fix == f"set limits.memory to what it needs at its peak{said}"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1.25, "1.25"),
        (6.25, "6.25"),
        (0.125, "0.13"),
        (1.005, "1.01"),
        (100 / 3, "33.33"),
        (99.75, "99.75"),
        (66.8, "66.8"),
        (100.0, "100"),
        (0.05, "0.05"),
        (0.00125, "0.001"),
        (0.0, "0"),
    ],
)
def test_milliseconds_have_two_decimals_rounded_half_up(value, shown):
    assert ms(value) == f"{shown} ms"


@pytest.mark.parametrize(
    ("amount", "words"),
    [
        ("'{{ .Values.cpu }}'", "helm template"),
        ("'{{inputs.parameters.cpu}}'", "program that it is written for"),
        ("'{{ .CPU }}'", "program that it is written for"),
        ("'${CPU}'", "substitute the variable"),
        ("half", "250m"),
    ],
)
def test_a_template_in_place_of_an_amount_is_rendered_by_its_own_program(amount, words):
    text = workload(container(f"{{requests: {{cpu: {amount}, memory: 1Gi}}, limits: {{memory: 1Gi}}}}"))
    assert words in only("bad-quantity", text).fix


@pytest.mark.parametrize(
    ("item", "fix"),
    [
        (
            "default: {cpu: 500m}, max: {cpu: 800m}, defaultRequest: {cpu: 200m}",
            (
                "drop default.cpu: 500m and max.cpu: 800m (which would be the default limit then); "
                "keep defaultRequest.cpu: 200m, which gives a share without a quota"
            ),
        ),
        (
            "default: {cpu: 500m}, max: {memory: 1Gi}",
            "drop default.cpu: 500m; set defaultRequest.cpu, which gives a share without a quota",
        ),
        (
            "max: {cpu: 800m}",
            (
                "drop max.cpu: 800m (a maximum is a default limit, too); set defaultRequest.cpu, which "
                "gives a share without a quota"
            ),
        ),
        (
            "default: {cpu: 1}, maxLimitRequestRatio: {cpu: 2}, defaultRequest: {cpu: 1}",
            (
                "drop default.cpu: 1 and maxLimitRequestRatio.cpu: 2 (which rejects containers without "
                "a limit); keep defaultRequest.cpu: 1, which gives a share without a quota"
            ),
        ),
    ],
)
def test_the_fix_of_a_limit_range_names_all_that_would_still_limit(item, fix):
    assert only("limitrange-adds-limit", limit_range(item)).fix == fix


@pytest.mark.parametrize("kept", ["default", "max"])
def test_what_the_fix_of_a_limit_range_drops_is_all_that_limits(kept):
    """Each half of it alone still limits the container, by the linter's own defaulting."""
    bare = workload(container("{limits: {memory: 1Gi}}"))
    assert "limit-from-range" in rules(limit_range(f"{kept}: {{cpu: 500m}}"), bare)
    assert "limit-from-range" not in rules(limit_range("defaultRequest: {cpu: 500m}"), bare)
