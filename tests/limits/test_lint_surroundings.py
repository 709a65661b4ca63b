"""What lint sees beside a workload: LimitRanges, quotas, autoscalers, burst, the kubelet's configuration."""

import itertools
import textwrap

import pytest

from corelane.limits.lint.linter import lint
from corelane.limits.lint.policy import Policy, Severity
from support.manifests import amounts, container, findings, limit_range, only, report, rules, workload

BARE = workload(container(amounts("1", memory_limit="1Gi")))
NOTHING = workload(container("{limits: {memory: 1Gi}}"))


def quota(hard: str, more: str = "") -> str:
    return f"apiVersion: v1\nkind: ResourceQuota\nmetadata: {{name: q}}\nspec: {{hard: {{{hard}}}{more}}}\n"


def scaler(target: int, metric: str = "resource", more: str = "") -> str:
    goal = f"{{type: Utilization, averageUtilization: {target}}}"
    return (
        "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: h}\nspec:\n"
        "  scaleTargetRef: {kind: Deployment, name: web}\n"
        f"  metrics: [{{type: Resource, {metric}: {{name: cpu{more}, target: {goal}}}}}]\n"
    )


def pod(burst: str, limit: str = "1") -> str:
    return workload(
        container(amounts("1", limit=limit)), meta=f"{{annotations: {{koordinator.sh/cpuBurst: '{burst}'}}}}"
    )


@pytest.mark.parametrize("item", ["default: {cpu: 500m}", "max: {cpu: 500m}"])
def test_a_limit_range_that_makes_limits_is_said_there_and_at_the_container(item):
    text = workload(container("{limits: {memory: 1Gi}}"))
    at_range = only("limitrange-adds-limit", limit_range(item), text)
    assert "Deployment/web app" in at_range.message
    assert at_range.file == "f0.yaml"
    at_container = only("limit-from-range", limit_range(item), text)
    assert at_container.file == "f1.yaml"
    assert at_container.cost.stall_ms == 50
    assert "no-cpu-request" not in rules(limit_range(item), text)


@pytest.mark.parametrize(
    ("item", "resources", "fault"),
    [
        ("max: {cpu: 16}", amounts("17", limit="17"), "maximum cpu is 16, the limit is 17"),
        (
            "max: {memory: 1Gi}",
            amounts("1", "2Gi", memory_limit="2Gi"),
            "maximum memory is 1Gi, the limit is 2Gi",
        ),
        ("min: {cpu: 200m}", amounts("50m"), "minimum cpu is 200m, 50m requested"),
        (
            "min: {memory: 128Mi}",
            amounts("1", "64Mi", memory_limit="64Mi"),
            "minimum memory is 128Mi, 64Mi requested",
        ),
        (
            "maxLimitRequestRatio: {cpu: 4}",
            amounts("100m", limit="1"),
            "limit 1 and request 100m of cpu, a ratio above 4",
        ),
        (
            "maxLimitRequestRatio: {cpu: 4}",
            amounts("100m"),
            "limit nothing and request 100m of cpu, a ratio above 4",
        ),
        ("max: {cpu: 2}, default: {cpu: 3}", amounts("1"), "maximum cpu is 2, the limit is 3"),
    ],
)
def test_a_container_that_a_limit_range_rejects_is_an_error_without_advice_about_its_limit(
    item, resources, fault
):
    texts = (limit_range(item), workload(container(resources)))
    assert only("limitrange-refuses-pod", *texts).message == f"LimitRange lr rejects this container: {fault}"
    assert "cpu-limit" not in {one.rule for one in findings(*texts) if one.container}


@pytest.mark.parametrize(
    "resources",
    [amounts("1", limit="2"), amounts("200m", limit="400m", memory="128Mi", memory_limit="128Mi")],
)
def test_a_container_within_a_limit_range_is_not_rejected(resources):
    item = "max: {cpu: 2, memory: 1Gi}, min: {cpu: 200m, memory: 128Mi}, maxLimitRequestRatio: {cpu: 2}"
    assert "limitrange-refuses-pod" not in rules(limit_range(item), workload(container(resources)))


@pytest.mark.parametrize(
    ("item", "bounds"),
    [
        ("min: {cpu: 2}", "at least 2"),
        ("max: {cpu: 500m}", "at most 500m"),
        ("min: {cpu: 2}, max: {cpu: 4}", "at least 2 and at most 4"),
    ],
)
def test_the_remedy_names_the_bounds_of_a_limit_range(item, bounds):
    found = only("limitrange-refuses-pod", limit_range(item), workload(container(amounts("1", limit="1"))))
    assert found.fix == f"write request and limit of {bounds}"


def test_a_whole_pod_is_held_to_a_limit_range_of_pods():
    pods = limit_range("max: {cpu: 2}").replace("type: Container", "type: Pod")
    both = workload(container(amounts("2", limit="2")), container(amounts("1", limit="1"), name="side"))
    found = only("limitrange-refuses-pod", pods, both)
    assert (found.container, found.message) == (
        "",
        "LimitRange lr rejects this pod: maximum cpu is 2, the limit is 3",
    )


def test_a_quota_names_every_amount_that_it_counts_and_a_container_lacks():
    text = workload(container("{limits: {cpu: 1}}"))
    found = only("quota-refuses-pod", quota("limits.cpu: 9, requests.memory: 9Gi, limits.memory: 9Gi"), text)
    assert "counts limits.memory and requests.memory" in found.message
    assert "set limits.memory to what it needs at its peak" in found.fix


@pytest.mark.parametrize(
    ("mark", "annotation"),
    [
        ("linkerd.io/inject: enabled", "config.linkerd.io/proxy-cpu-request"),
        ("dapr.io/enabled: 'true'", "dapr.io/sidecar-cpu-request"),
        ("sidecar.istio.io/inject: 'true'", ""),
    ],
)
def test_an_injected_container_without_a_request_blinds_the_autoscaler(mark, annotation):
    injected = workload(container(amounts("1")), meta=f"{{annotations: {{{mark}}}}}")
    found = [one for one in findings(f"{scaler(60)}---\n{injected}") if one.rule == "hpa-without-request"]
    assert [one.severity for one in found] == ([Severity.WARNING] if annotation else [])
    if annotation:
        assert f"set the annotation {annotation}" in found[0].fix
        given = workload(container(amounts("1")), meta=f"{{annotations: {{{mark}, {annotation}: 100m}}}}")
        assert "hpa-without-request" not in rules(f"{scaler(60)}---\n{given}")
        of_one = scaler(60, "containerResource", ", container: app")
        assert "hpa-without-request" not in rules(f"{of_one}---\n{injected}")


@pytest.mark.parametrize(
    ("trigger", "blind"),
    [
        ("{type: cpu, metricType: Utilization, metadata: {value: '60'}}", True),
        ("{type: cpu, metadata: {type: Utilization, value: '60'}}", True),
        ("{type: cpu, metricType: AverageValue, metadata: {value: 500m}}", False),
        ("{type: cpu, metricType: Utilization, metadata: {value: '60', containerName: side}}", False),
        ("{type: kafka, metadata: {value: '60'}}", False),
    ],
)
def test_kedas_cpu_triggers_need_requests_as_autoscalers_do(trigger, blind):
    text = workload(container("{limits: {memory: 1Gi}}"), container(amounts("1"), name="side"))
    scaled = (
        "apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nmetadata: {name: k}\n"
        f"spec: {{scaleTargetRef: {{name: web}}, triggers: [{trigger}]}}\n"
    )
    assert ("hpa-without-request" in rules(f"{scaled}---\n{text}")) is blind


def test_a_container_that_only_waits_is_not_reported_for_a_limit_ranges_limit():
    waiting = workload("{name: app, image: app, command: [sleep, infinity]}")
    found = findings(limit_range("default: {cpu: 500m}"), waiting)
    assert [one.rule for one in found] == ["limitrange-adds-limit"]
    assert "Deployment/web" not in found[0].message


def test_a_limit_range_that_several_files_define_counts_beside_each_only():
    mine, text = limit_range("default: {cpu: 500m}", namespace="shop"), NOTHING
    text = text.replace("metadata: {name: web}", "metadata: {name: web, namespace: shop}", 1)

    def limited(*ranges: str) -> bool:
        files = {**dict.fromkeys(ranges, mine), "apps/web/deployment.yaml": text}
        return "limit-from-range" in {one.rule for one in lint(files, Policy()).findings}

    assert limited("policies/range.yaml")
    assert not limited("a/range.yaml", "b/range.yaml")
    assert limited("a/range.yaml", "apps/range.yaml")


def test_a_default_limit_below_a_request_refuses_the_pod():
    found = only("limit-below-request", limit_range("default: {cpu: 500m}"), BARE)
    assert "from LimitRange lr" in found.message


def test_threads_from_the_limit_count_a_limit_ranges_too():
    text = NOTHING.replace(
        "image: app",
        "image: app, env: [{name: GOMAXPROCS, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}]",
    )
    assert "threads-follow-limit" in rules(limit_range("defaultRequest: {cpu: 1}"), text)
    assert "threads-follow-limit" not in rules(limit_range("default: {cpu: 1}"), text)


def test_a_quota_on_limits_makes_them_compulsory():
    found = findings(quota("limits.cpu: 10"), BARE)
    assert {one.rule: one.severity for one in found} == {
        "quota-demands-limits": Severity.WARNING,
        "quota-refuses-pod": Severity.ERROR,
    }
    assert rules(quota("limits.cpu: 10"), limit_range("default: {cpu: 2}"), BARE) == {
        "quota-demands-limits",
        "limitrange-adds-limit",
        "limit-from-range",
    }


@pytest.mark.parametrize("hard", ["requests.cpu: 10", "cpu: 10"])
def test_a_quota_on_requests_refuses_who_has_none(hard):
    assert rules(quota(hard), BARE) == set()
    assert "quota-refuses-pod" in rules(quota(hard), NOTHING)


def test_dropping_a_limit_names_what_stands_in_the_way_and_who_notices():
    text = workload(container(amounts("250m", limit="500m")))
    both = f"{scaler(80)}---\n{text}"
    fix = only("cpu-limit", limit_range("default: {cpu: 1}"), quota("limits.cpu: 9"), both).fix
    assert "LimitRange lr would set another limit" in fix
    assert "ResourceQuota q rejects pods without a limit" in fix
    assert "HorizontalPodAutoscaler h scales sooner" in fix


def test_a_quota_with_scopes_may_not_be_about_this_pod():
    assert "quota-refuses-pod" not in rules(quota("requests.cpu: 10", ", scopes: [Terminating]"), NOTHING)


def test_utilisation_without_requests_scales_nothing():
    sidecar = container("{limits: {memory: 1Gi}}", name="side")
    text = workload(container(amounts("1")), sidecar)
    assert "side has none" in only("hpa-without-request", f"{scaler(80)}---\n{text}").message
    own = scaler(80, "containerResource", ", container: app")
    assert "hpa-without-request" not in rules(f"{own}---\n{text}")


LACKS = workload(container("{}"))
RELEASE = "labels: {app.kubernetes.io/instance: %s}"


def paired(files: dict[str, str]) -> list[tuple[str, str]]:
    """The files and lines of scalers that scale a workload without requests."""
    found = lint(files, Policy()).findings
    return [one.file for one in found if one.rule == "hpa-without-request"]


def within(text: str, meta: str) -> str:
    return text.replace("metadata: {name:", f"metadata: {{{meta}, name:")


@pytest.mark.parametrize(
    ("one", "other", "pairs"),
    [
        ("", "", False),
        ("namespace: a", "namespace: a", True),
        ("namespace: a", "namespace: b", False),
        ("namespace: a", "", False),
        (RELEASE % "r", RELEASE % "r", True),
        (RELEASE % "r", RELEASE % "s", False),
        (f"namespace: a, {RELEASE % 'r'}", f"namespace: a, {RELEASE % 's'}", False),
    ],
)
def test_a_scaler_pairs_across_files_by_namespace_or_release(one, other, pairs):
    files = {"h.yaml": within(scaler(80), one), "w.yaml": within(LACKS, other)}
    assert bool(paired(files)) is pairs


def test_a_scaler_pairs_with_the_workload_of_its_own_file():
    whole = workload(container(amounts("1")))
    files = {"a.yaml": f"{scaler(80)}---\n{whole}", "b.yaml": LACKS, "c.yaml": f"{scaler(80)}---\n{LACKS}"}
    assert paired(files) == ["c.yaml"]
    given = {name: text.replace("{name: ", "{namespace: x, name: ") for name, text in files.items()}
    assert paired(given) == ["c.yaml"], "two variants of one namespace"


def test_a_scaler_pairs_within_its_chart():
    piped = "---\n# Source: {}/templates/x.yaml\n{}"
    assert paired({"-": piped.format("a", scaler(80)) + piped.format("a", LACKS)}) == ["-"]
    assert paired({"-": piped.format("a", scaler(80)) + piped.format("b", LACKS)}) == []
    rendered = {"dev/a/templates/x.yaml": scaler(80), "prod/a/templates/x.yaml": LACKS}
    assert paired({name: piped.format("a", text) for name, text in rendered.items()}) == []
    rendered = {"dev/a/templates/h.yaml": scaler(80), "dev/a/templates/sub/w.yaml": LACKS}
    sources = {name: f"# Source: {name.removeprefix('dev/')}\n{text}" for name, text in rendered.items()}
    assert paired(sources) == ["dev/a/templates/h.yaml"]


def test_a_scaler_pairs_within_its_kustomization():
    files = {"k/h.yaml": scaler(80), "k/w.yaml": LACKS, "w.yaml": LACKS}
    assert paired(files) == []
    assert paired({**files, "k/kustomization.yaml": "resources: [h.yaml, ./w.yaml]\n"}) == ["k/h.yaml"]


def test_a_fragment_without_an_image_is_not_told_what_it_lacks():
    text = workload(container("{limits: {cpu: 200m}}")).replace(", image: app", "")
    assert rules(text) == {"cpu-limit"}
    assert report(text).patches == 1
    assert "hpa-without-request" not in rules(f"{scaler(80)}---\n{text}")


def test_a_patch_keeps_the_request_that_it_does_not_show():
    text = workload(container("{limits: {cpu: 200m}}")).replace(", image: app", "")
    found = only("cpu-limit", text)
    assert "remove limits.cpu; where nothing else sets requests.cpu" in found.fix
    assert "requests" not in str(found.patch)
    ranged = f"{limit_range('default: {cpu: 1}')}---\n"
    above = workload(container("{requests: {cpu: 2}}")).replace(", image: app", "")
    assert "limit-below-request" not in rules(ranged + above)
    assert "limit-below-request" in rules(ranged + workload(container("{requests: {cpu: 2}}")))


INLINE = """# patches of web
namePrefix: a-
{key}:
{item}{header}
{lines}
resources: [web.yaml]
"""
FRAGMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  template:
    spec:
      containers:
      - name: web
        resources:
          limits:
            cpu: 200m
"""
OPERATIONS = "- op: remove\n  path: /spec/template/spec/containers/0/resources/limits/cpu\n"


@pytest.mark.parametrize("header", ["|", "|-", "|+  # why", "|-\r"])
@pytest.mark.parametrize(
    "before", ["", "---", f"{OPERATIONS}---", f"---{FRAGMENT.replace('limits', 'requests')}---"]
)
def test_a_patch_inside_a_kustomization_is_judged_where_it_stands(header, before):
    places = (
        ("patches", "- patch: "),
        ("patchesStrategicMerge", "- "),
        ("patches", "- target: {}\n  patch: "),
    )
    for indent, (key, item) in itertools.product((3, 4, 7), places):
        lines = textwrap.indent(f"{before}{FRAGMENT}", " " * indent).rstrip()
        text = INLINE.format(key=key, item=item, header=header, lines=lines)
        made = lint({"kustomization.yaml": text}, Policy())
        assert not made.faults
        assert [(one.rule, one.name) for one in made.findings] == [("cpu-limit", "web")]
        place, ends = made.findings[0].place, text[: text.rindex("cpu: 200m")].split("\n")
        assert (place.line, place.column) == (len(ends), len(ends[-1]) + 1)
        assert made.patches >= 1


def test_an_ignored_or_broken_patch_inside_a_kustomization():
    excused = FRAGMENT.replace("200m", "200m  # corelane: ignore cpu-limit batch")
    text = INLINE.format(key="patches", item="- patch: ", header="|", lines=textwrap.indent(excused, "    "))
    assert [one.ignored for one in lint({"kustomization.yaml": text}, Policy()).ignored] == ["batch"]
    broken = INLINE.format(key="patches", item="- patch: ", header="|", lines="    a: b\n    a: [")
    (fault,) = lint({"kustomization.yaml": broken}, Policy()).faults
    assert (fault.file, fault.line) == ("kustomization.yaml", 7)
    assert not lint({"other.yaml": f"kind: x\napiVersion: y\n{text}"}, Policy()).findings


SELECTED = workload(container()).replace("{template", "{selector: {matchLabels: {a: b}}, template")


@pytest.mark.parametrize(
    ("files", "patches"),
    [
        ({"k/manager.yaml": workload(container())}, 1),
        ({"manager.yaml": workload(container())}, 0),
        ({"k/deep/manager.yaml": workload(container())}, 0),
        ({"k/used.yaml": workload(container())}, 0),
        ({"k/manager.yaml": SELECTED}, 0),
        ({"manager_image_patch.yaml": workload(container())}, 1),
        ({"manager_image_patch.yaml": SELECTED}, 0),
        ({"k/pod.yaml": workload(container(), kind="Pod").replace("apps/v1", "v1")}, 0),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else str(value),
)
def test_a_fragment_without_its_selector_that_no_kustomization_uses_is_a_patch(files, patches):
    found = lint({**files, "k/kustomization.yaml": "resources: [used.yaml]\n"}, Policy())
    assert found.patches == patches
    assert ("no-cpu-request" in {one.rule for one in found.findings}) is (not patches)


@pytest.mark.parametrize(
    ("asked", "limit", "target", "severity"),
    [
        ("1", "1", 100, Severity.ERROR),
        ("1", "1", 80, Severity.WARNING),
        ("1", "2", 80, None),
        ("1", "", 80, None),
    ],
)
def test_limits_cap_what_an_autoscaler_can_see(asked, limit, target, severity):
    text = workload(container(amounts(asked, limit=limit)))
    found = [one for one in findings(f"{scaler(target)}---\n{text}") if one.rule == "hpa-capped"]
    assert [one.severity for one in found] == ([severity] if severity else [])


@pytest.mark.parametrize(
    "metric",
    [
        "{type: Pods, pods: {metric: {name: queue}, target: {type: AverageValue, averageValue: 1}}}",
        "{type: Resource, resource: {name: memory, target: {type: Utilization, averageUtilization: 70}}}",
        "{type: Resource, resource: {name: cpu, target: {type: AverageValue, averageValue: 2}}}",
    ],
)
@pytest.mark.parametrize(
    ("limit", "target", "rule", "severity", "words"),
    [
        ("1", 100, "hpa-capped", Severity.WARNING, "never exceeded and only its other metrics scale up"),
        ("1", 80, "hpa-capped", Severity.INFO, "one step by this metric adds at most 25% replicas"),
        ("", 80, "hpa-without-request", Severity.ERROR, "other metrics scale up, and nothing scales down"),
    ],
)
def test_an_autoscaler_with_other_metrics_may_scale_by_these(metric, limit, target, rule, severity, words):
    one = scaler(target)
    several = one.replace("metrics: [", f"metrics: [{metric}, ")
    text = workload(container(amounts(limit, limit=limit)))
    found = only(rule, f"{several}---\n{text}")
    assert (found.severity, words in found.message) == (severity, True)
    assert "other metrics" not in only(rule, f"{one}---\n{text}").message


def test_the_old_form_of_a_target_is_read_too():
    old = (
        "apiVersion: autoscaling/v1\nkind: HorizontalPodAutoscaler\nmetadata: {name: h}\n"
        "spec: {scaleTargetRef: {kind: Deployment, name: web}, targetCPUUtilizationPercentage: 100}\n"
    )
    scaled = workload(container(amounts("1", limit="1")))
    assert only("hpa-capped", f"{old}---\n{scaled}").place.line == 4


@pytest.mark.parametrize(
    ("burst", "words"),
    [
        ("no json", "not a JSON object"),
        ("[1]", "not a JSON object"),
        ('{"policy": "often"}', "'often' does not exist"),
        ('{"policy": "auto", "cpuBurstPercent": 1000}', "EINVAL"),
        ('{"policy": "cpuBurstOnly"}', "then is 1000 %"),
        ('{"policy": "none", "cfsQuotaBurstPercent": 50}', "from 100 up"),
        ('{"policy": "none", "cpuBurstPercent": "100"}', "cpuBurstPercent"),
        ('{"policy": "none", "cfsQuotaBurstPeriodSeconds": -2}', "from -1 up"),
    ],
)
def test_a_burst_that_cannot_work_is_said(burst, words):
    found = only("cpu-burst", pod(burst))
    assert words in found.message
    assert found.severity is Severity.ERROR


@pytest.mark.parametrize(
    "burst", ['{"policy": "cpuBurstOnly", "cpuBurstPercent": 100}', '{"policy": "none"}']
)
def test_a_burst_that_works_is_fine(burst):
    assert "cpu-burst" not in rules(pod(burst))


def test_a_burst_without_a_limit_has_nothing_to_burst():
    found = only("cpu-burst", pod('{"policy": "cfsQuotaBurstOnly"}', limit=""))
    assert found.severity is Severity.INFO


def test_a_clusters_burst_strategy_is_checked_for_every_node():
    config = '{"clusterStrategy": {"policy": "none"}, "nodeStrategies": [{"policy": "auto"}]}'
    text = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\ndata: {{cpu-burst-config: '{config}'}}\n"
    assert "nodeStrategies[0]" in only("cpu-burst-config", text).message


@pytest.mark.parametrize(
    ("period", "gate", "severity"),
    [
        ("100ms", False, None),
        ("0.1s", False, None),
        ("20ms", True, None),
        ("20ms", False, Severity.ERROR),
        ("5ms", True, Severity.WARNING),
        ("500us", True, Severity.ERROR),
        ("2s", True, Severity.ERROR),
        ("soon", True, Severity.ERROR),
    ],
)
def test_the_kubelets_period_has_bounds_and_a_gate(period, gate, severity):
    text = (
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        f"cpuCFSQuotaPeriod: {period}\nfeatureGates: {{CustomCPUCFSQuotaPeriod: {str(gate).lower()}}}\n"
    )
    found = findings(text)
    assert [one.severity for one in found] == ([severity] if severity else [])


def test_a_kubelet_without_quotas_is_mentioned():
    text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncpuCFSQuota: false\n"
    assert only("cfs-quota-off", text).severity is Severity.INFO


LONG = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  template:
    spec:
      containers:
      - name: a
        resources:
          requests: {cpu: 1, memory: 1Gi}
          limits:
            memory: 1Gi
            cpu: 2
      - name: b
        resources:
          requests: {cpu: 1, memory: 1Gi}
          limits:
            memory: 1Gi
            cpu: 2
"""


def with_comment(line: int, comment: str, *, own_line: bool = False) -> str:
    lines = LONG.splitlines()
    if own_line:
        lines.insert(line - 1, f"  {comment}")
    else:
        lines[line - 1] += f"  {comment}"
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("line", "excused"),
    [(13, ["a"]), (11, ["a"]), (9, ["a"]), (8, ["a"]), (7, ["a", "b"]), (1, ["a", "b"]), (12, []), (10, [])],
)
@pytest.mark.parametrize("own_line", [False, True])
def test_a_comment_excuses_its_line_and_what_begins_there(line, excused, own_line):
    found = report(with_comment(line, "# corelane: ignore cpu-limit it protects batch", own_line=own_line))
    assert [one.container for one in found.ignored] == excused
    assert len(found.findings) == 2 - len(excused)
    assert all(one.ignored == "it protects batch" for one in found.ignored)


@pytest.mark.parametrize("name", ["all", "quota-floor,cpu-limit"])
def test_a_comment_may_name_several_rules_or_all(name):
    assert report(with_comment(7, f"# corelane: ignore {name} on purpose")).findings == ()


@pytest.mark.parametrize(
    ("comment", "words"),
    [
        ("# corelane: ignore cpu-limit", "no reason"),
        ("# corelane: ignore", "no rule"),
        ("# corelane: ignore x y", "x"),
    ],
)
def test_a_comment_without_a_rule_or_a_reason_excuses_nothing_and_is_said(comment, words):
    found = report(with_comment(13, comment))
    assert found.ignored == ()
    (bad,) = [one for one in found.findings if one.rule == "bad-ignore"]
    assert words in bad.message


def test_policy_can_change_severities_and_switch_rules_off():
    policy = Policy(severities={"cpu-limit": Severity.INFO})
    assert {one.severity for one in findings(LONG, policy=policy)} == {Severity.INFO}
    assert findings(LONG, policy=Policy(severities={"cpu-limit": None})) == []


@pytest.mark.parametrize(
    ("range_at", "workload_at", "paired"),
    [
        ("a/ns.yaml", "a/app.yaml", True),
        ("a/ns.yaml", "a/web/app.yaml", True),
        ("ns.yaml", "a/app.yaml", True),
        ("a/ns.yaml", "b/app.yaml", False),
        ("a/ns.yaml", "ab/app.yaml", False),
        ("a/b/ns.yaml", "a/app.yaml", False),
    ],
)
def test_without_a_namespace_a_limit_range_or_quota_is_of_its_directory(range_at, workload_at, paired):
    texts = {
        range_at: limit_range("default: {cpu: 500m}") + "---\n" + quota("limits.cpu: 1"),
        workload_at: NOTHING,
    }
    found = lint(texts, Policy()).findings
    own = {one.rule for one in found if one.file == workload_at}
    assert ("limit-from-range" in own) is paired
    (adds,) = [one for one in found if one.rule == "limitrange-adds-limit"]
    assert ("here:" in adds.message) is paired


def test_with_a_namespace_a_limit_range_is_of_it_in_any_file():
    texts = {
        "a/ns.yaml": limit_range("default: {cpu: 500m}", namespace="shop"),
        "b/app.yaml": NOTHING.replace("name: web", "name: web, namespace: shop", 1),
        "b/other.yaml": NOTHING,
    }
    found = [one.file for one in lint(texts, Policy()).findings if one.rule == "limit-from-range"]
    assert found == ["b/app.yaml"]


WINDOWS = (
    "os: {name: windows}",
    "nodeSelector: {kubernetes.io/os: windows}",
    "nodeSelector: {beta.kubernetes.io/os: windows}",
    "securityContext: {windowsOptions: {hostProcess: true}}",
)


@pytest.mark.parametrize("spec", [*WINDOWS, "os: {name: linux}"])
def test_windows_pods_are_counted_but_not_judged(spec):
    text = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  %s\n"
        "  containers: [{name: app, image: x, resources: {limits: {cpu: 100m}}}]\n"
    )
    made = lint({"f.yaml": text % spec}, Policy())
    assert (not made.findings) is (spec in WINDOWS)
    assert made.unjudged == ({"Windows pods": 1} if spec in WINDOWS else {})


@pytest.mark.parametrize(
    ("hook", "judged"),
    [
        ("test", False),
        ("test-success", False),
        ("post-install, test", False),
        ("post-install", True),
        ("", True),
    ],
)
def test_pods_of_helm_test_are_not_judged_but_their_errors_are(hook, judged):
    text = (
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p, annotations: {{helm.sh/hook: '{hook}'}}}}\nspec:\n"
        "  containers: [{name: app, image: x}, {name: b, image: x, resources: {limits: {cpu: many}}}]\n"
    )
    made = lint({"f.yaml": text}, Policy())
    found = {one.rule for one in made.findings}
    assert ("no-cpu-request" in found) is judged
    assert "bad-quantity" in found
