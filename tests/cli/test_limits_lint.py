"""`corelane limits lint` on files, directories and pipes: what it prints, how it exits, what CI reads."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from corelane.cli import main
from corelane.limits.lint.rules import RULES

WEB = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  template:
    spec:
      containers:
      - name: app
        resources:
          requests: {cpu: 200m, memory: 1Gi}
          limits:
            cpu: 200m
            memory: 1Gi
"""
CLEAN = WEB.replace("            cpu: 200m\n", "")


def run(*args: object, stdin: bytes | str | None = None) -> Result:
    return CliRunner().invoke(main, ["limits", "lint", *map(str, args)], input=stdin)


@pytest.fixture
def web(tmp_path: Path) -> Path:
    path = tmp_path / "web.yaml"
    path.write_text(WEB)
    return path


def test_a_finding_is_one_line_to_grep(web):
    result = run(web)
    assert result.exit_code == 1
    (line,) = result.stdout.splitlines()
    assert line.startswith(
        f"{web}:12:13: error cpu-limit: Deployment shop/web, container app: CPU limit 200m"
    )
    assert "; fix: remove limits.cpu" in line
    assert "1 workload: 1 error" in result.stderr


def test_clean_manifests_exit_with_0(tmp_path):
    (tmp_path / "a.yml").write_text(CLEAN)
    result = run(tmp_path)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "1 workload: nothing found" in result.stderr


@pytest.mark.parametrize(("fail_on", "code"), [("info", 1), ("error", 1), ("never", 0)])
def test_fail_on_decides_what_fails(web, fail_on, code):
    assert run(web, "--fail-on", fail_on).exit_code == code


def test_standard_input_is_a_file_named_dash():
    result = run("-", stdin=f"---\n# Source: shop/templates/web.yaml\n{WEB}")
    assert result.exit_code == 1
    assert result.stdout.startswith("-:14:13: ")
    found = json.loads(run("-", "-o", "json", stdin=f"# Source: shop/templates/web.yaml\n{WEB}").stdout)
    assert found["findings"][0]["source"] == "shop/templates/web.yaml"


def test_json_has_stable_keys(web):
    found = json.loads(run(web, "-o", "json").stdout)
    assert set(found) == {"findings", "ignored", "faults", "notes", "summary"}
    (one,) = found["findings"]
    assert one.pop("message")
    assert one.pop("fix")
    assert one.pop("patch")["spec"]["template"]["spec"]["containers"][0]["name"] == "app"
    assert one == {
        "file": str(web),
        "line": 12,
        "column": 13,
        "source": None,
        "rule": "cpu-limit",
        "severity": "error",
        "kind": "Deployment",
        "namespace": "shop",
        "name": "web",
        "container": "app",
        "cost": {
            "threads": 4,
            "quotaMs": 20.0,
            "periodMs": 100.0,
            "stallMs": 95.0,
            "lostMsPerSecond": 3800.0,
        },
    }
    amounts = {"info": 0, "warning": 0, "error": 1}
    assert found["summary"] == {"workloads": 1, **amounts, "skipped": {}, "unjudged": {}}


def test_sarif_has_what_the_schema_requires(web, tmp_path):
    """Required members and value sets of SARIF 2.1.0 (OASIS), as far as we write them."""
    broken = tmp_path / "bro ken.yaml"
    broken.write_text("a: [\n")
    web.write_text(
        WEB.replace("cpu: 200m\n            m", "cpu: 200m # corelane: ignore cpu-limit why\n            m")
        + "---\n"
        + WEB
    )
    log = json.loads(run(web, broken, "-o", "sarif").stdout)
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-schema-2.1.0.json")
    (one,) = log["runs"]
    driver = one["tool"]["driver"]
    assert driver["name"]
    assert [rule["id"] for rule in driver["rules"]] == [rule.id for rule in RULES]
    for rule in driver["rules"]:
        assert rule["shortDescription"]["text"]
        assert rule["help"]["text"]
        assert rule["defaultConfiguration"]["level"] in ("none", "note", "warning", "error")
    (counts, ignored) = one["results"]
    for result in (counts, ignored):
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "cpu-limit"
        assert result["level"] == "error"
        assert result["message"]["text"]
        place = result["locations"][0]["physicalLocation"]
        assert place["region"]["startLine"] >= 1
        assert place["region"]["startColumn"] >= 1
        assert "\\" not in place["artifactLocation"]["uri"]
    assert "suppressions" not in counts
    assert ignored["suppressions"] == [{"kind": "inSource", "justification": "why"}]
    (invocation,) = one["invocations"]
    assert invocation["executionSuccessful"] is False
    (notice,) = invocation["toolExecutionNotifications"]
    assert notice["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].endswith("/bro%20ken.yaml")


def test_a_broken_file_is_one_line_and_the_others_are_linted(web, tmp_path):
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: 1\n\tb: 2\n")
    result = run(broken, web)
    assert result.exit_code == 2
    assert "cpu-limit" in result.stdout
    errors = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1
    assert errors[0].startswith(f"Error: {broken}:2:1: not YAML")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a: \xff\n", ":1:4: is not UTF-8 text"),
        (
            "kind: Pod\n".encode("utf-16"),
            ":1:1: is UTF-16 text, as PowerShell's > writes it; save it as UTF-8",
        ),
        ("kind: Pod\n".encode("utf-16-be"), "is UTF-16 text"),
        (b"a: 1\n---\n\xef\xbb\xbfb: 1\n", ":3:1: has a byte order mark (U+FEFF) after its beginning"),
        (b"a: b: c\n", ":1:5: not YAML"),
        (b"a: {{ .Values.x }}\n", "helm template"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_place(tmp_path, content, words):
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    result = run(path)
    assert result.exit_code == 2
    assert f"{path}" in result.stderr
    assert words in result.stderr


def test_a_missing_file_and_an_empty_pipe_are_errors(tmp_path):
    missing = run(tmp_path / "nowhere.yaml")
    assert missing.exit_code == 2
    assert "nowhere.yaml: No such file" in missing.stderr
    empty = run("-", stdin="")
    assert empty.exit_code == 2
    assert "no Kubernetes object" in empty.stderr


def test_a_charts_templates_are_left_to_helm(tmp_path, web):
    chart = tmp_path / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("name: c\n")
    (chart / "templates/x.yaml").write_text("{{ if }}")
    result = run(tmp_path)
    assert result.exit_code == 2, "a chart that was not linted is not clean"
    assert "cpu-limit" in result.stdout, "the rest is linted all the same"
    assert f"helm template {chart} | corelane limits lint -" in result.stderr


def test_a_chart_with_subcharts_is_rendered_at_once(tmp_path):
    for chart in ("shop", "shop/charts/db", "umbrella", "umbrella/charts/db"):
        (tmp_path / chart).mkdir(parents=True)
        (tmp_path / chart / "Chart.yaml").write_text("name: shop\n")
    for chart in ("shop", "shop/charts/db", "umbrella/charts/db"):
        (tmp_path / chart / "templates").mkdir()
    errors = [line for line in run(tmp_path).stderr.splitlines() if "helm template" in line]
    assert [line.split("helm template ")[1].split(" |")[0] for line in errors] == [
        f"{tmp_path}/shop",
        f"{tmp_path}/umbrella",
    ]
    assert f"helm template {tmp_path}/shop/charts/db |" in run(tmp_path / "shop/charts/db").stderr
    assert f"helm template {tmp_path}/umbrella/charts/db |" in run(tmp_path / "umbrella/charts").stderr


def test_templates_that_a_chart_reads_from_other_files_are_part_of_the_chart(tmp_path):
    for name in ("shop/templates", "shop/files", "other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "shop/Chart.yaml").write_text("name: shop\n")
    for name in ("shop/files/web.yaml", "other/web.yaml"):
        (tmp_path / name).write_text("kind: Pod\nx: {{ .Values.x }}\n---\ny: {{ .Values.y }}\n")
    (tmp_path / "shop/files/broken.yaml").write_text("x: [\n")
    result = run(tmp_path, "-o", "json")
    found = {
        Path(one["file"]).relative_to(tmp_path).as_posix() for one in json.loads(result.stdout)["faults"]
    }
    assert found == {"shop/templates", "other/web.yaml", "shop/files/broken.yaml"}
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 3)


def test_a_packaged_chart_is_named_with_how_to_render_it(tmp_path):
    packed = tmp_path / "shop-1.0.0.tgz"
    packed.write_bytes(b"\x1f\x8b\x08\x00")
    result = run(packed)
    assert result.exit_code == 2
    assert (
        f"{packed}: an archive of a Helm chart, not linted; render the chart: helm template" in result.stderr
    )


def test_a_pipe_in_a_directory_does_not_keep_lint_waiting(tmp_path, web):
    os.mkfifo(tmp_path / "pipe.yaml")
    command = [sys.executable, "-m", "corelane", "limits", "lint", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert result.returncode == 2
    assert f"{tmp_path}/pipe.yaml: is not a regular file" in result.stderr
    assert f"{web}:12:13: error cpu-limit" in result.stdout


@pytest.mark.parametrize("name", ["templates", "templates/x.yaml", "templates/sub", "templates/sub/y.yaml"])
def test_what_a_charts_templates_hold_is_no_manifest_even_where_it_is_yaml(tmp_path, name):
    (tmp_path / "templates/sub").mkdir(parents=True)
    (tmp_path / "Chart.yaml").write_text("name: c\n")
    for path in ("templates/x.yaml", "templates/sub/y.yaml"):
        (tmp_path / path).write_text(WEB.replace("name: web", 'name: "{{ .Release.Name }}"'))
    result = run(tmp_path / name)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{tmp_path / name}: a Helm chart's templates" in result.stderr
    assert f"helm template {tmp_path} | corelane limits lint -" in result.stderr


def test_the_template_that_helm_names_is_named():
    text = f"---\n# Source: shop/templates/web.yaml\n{WEB}"
    assert "Deployment shop/web from shop/templates/web.yaml, container app: " in run("-", stdin=text).stdout
    (one,) = json.loads(run("-", "-o", "sarif", stdin=text).stdout)["runs"][0]["results"]
    assert "from shop/templates/web.yaml" in one["message"]["text"]
    (related,) = one["relatedLocations"]
    assert related["physicalLocation"]["artifactLocation"]["uri"] == "shop/templates/web.yaml"


def test_a_kustomizations_patches_are_judged_by_what_they_set(tmp_path):
    patch = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {template: {spec: "
    (tmp_path / "base").mkdir()
    (tmp_path / "over").mkdir()
    (tmp_path / "base/kustomization.yaml").write_text("patchesStrategicMerge: [../over/b.yaml]\n")
    (tmp_path / "over/kustomization.yaml").write_text(
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\npatches: [{path: ./a.yaml}]\n"
    )
    (tmp_path / "over/a.yaml").write_text(patch + "{containers: [{name: app, image: i}]}}}\n")
    (tmp_path / "over/b.yaml").write_text(
        patch + "{containers: [{name: app, image: i, resources: {limits: {cpu: 200m}}}]}}}\n"
    )
    result = run(tmp_path)
    assert [line.split(": ")[1] for line in result.stdout.splitlines()] == ["error cpu-limit"]
    assert "; patches, judged by what they set: 2" in result.stderr
    (tmp_path / "over/kustomization.yaml").unlink()
    assert "over/a.yaml" in run(tmp_path).stdout, "without a kustomization, it is an object"


def test_hidden_directories_are_none_of_ours(tmp_path, web):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/x.yaml").write_text("a: [")
    assert run(tmp_path).exit_code == 1


def test_a_policy_file_is_obeyed_and_the_command_line_wins(tmp_path, web):
    policy = tmp_path / "policy.txt"
    policy.write_text("cpuLimit: allowed\nmemoryLimit: required\nseverity: {fractional-cpu-limit: off}\n")
    assert run(web, "--policy", policy).exit_code == 0
    assert run(web, "--policy", policy, "--cpu-limit", "never").exit_code == 1
    policy.write_text("ignore: [{rule: cpu-limit, namespace: sh*, container: app, reason: old}]\n")
    shown = run(web, "--policy", policy, "--show-ignored")
    assert shown.exit_code == 0
    assert shown.stdout.strip().endswith("; ignored: old")
    assert run(web, "--disable", "cpu-limit").exit_code == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cpuLimit: sometimes", "cpuLimit: 'sometimes' is invalid: use never, allowed or equal-to-request"),
        ("colour: red", "colour: unknown field, value 'red': use cpuRequest, cpuLimit,"),
        ("[]", "the file: [] is invalid: use a mapping with cpuRequest,"),
        ("a: [", "not YAML"),
        ("failOn: maybe", "failOn: 'maybe'"),
        ("nodeCPUs: many", "nodeCPUs: 'many'"),
        ("cfsPeriod: 2s", "cfsPeriod: '2s'"),
        ("exclusiveCPUs: 3", "exclusiveCPUs: 3"),
        ("severity: {cpu-limits: error}", "severity: key: 'cpu-limits' is invalid: use a rule"),
        (
            "severity: {cpu-limit: fatal}",
            "severity.cpu-limit: 'fatal' is invalid: use info, warning, error or off",
        ),
        ("severity: {cpu-limit: on}", "severity.cpu-limit: True is invalid"),
        ("severity: 1", "severity: 1"),
        ("ignore: {}", "ignore: {}"),
        ("customResources: {}", "customResources: {}"),
        ("customResources: [{kind: A}]", "customResources[0]: has neither pod"),
        ("customResources: [{kind: A, pod: a..b}]", "customResources[0].pod: 'a..b' is invalid: use a path"),
        ("customResources: [{pod: spec}]", "customResources[0]: kind is missing"),
        ("ignore: [{rule: cpu-limit}]", "ignore[0]: reason is missing"),
        ("ignore: [{rule: x, reason: y}]", "ignore[0].rule: 'x' is invalid: use a rule"),
        ("ignore: [{rule: [x], reason: y}]", "ignore[0].rule: ['x'] is invalid: use a string"),
        ("ignore: [{rules: x, reason: y}]", "ignore[0].rules: unknown field, value 'x'"),
    ],
)
def test_a_bad_policy_is_one_line_that_names_file_and_field(tmp_path, web, text, words):
    policy = tmp_path / "policy.yaml"
    policy.write_text(text)
    result = run(web, "--policy", policy)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert str(policy) in line
    assert words in line


def test_rules_are_listed_and_explained():
    listed = run("--rules").stdout
    for rule in RULES:
        assert rule.id in listed
        text = run("--explain", rule.id).stdout
        assert rule.why in text
        assert rule.fix in text
    assert run("--explain", "nonsense").exit_code == 2
    assert run().exit_code == 2


def test_the_documents_example_of_comments_ignores_what_it_names():
    page = (Path(__file__).parents[2] / "docs/limits-lint.md").read_text()
    example = page.split("## Ignoring a finding")[1].split("```")[1].removeprefix("yaml\n")
    pod = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec:\n{example}"
    report = json.loads(run("-", "-o", "json", stdin=pod).stdout)
    assert report["findings"] == []
    assert {one["rule"] for one in report["ignored"]} == {"memory-limit-missing", "no-cpu-request"}
    limited = pod.replace("resources: {}", "resources: {limits: {cpu: 200m, memory: 1Gi}}")
    assert limited != pod
    report = json.loads(run("-", "-o", "json", stdin=limited).stdout)
    assert "cpu-limit" in {one["rule"] for one in report["ignored"]}


def test_every_rule_is_documented_with_its_reason_and_its_fix():
    page = (Path(__file__).parents[2] / "docs/reference/limits-lint-rules.md").read_text()
    words = " ".join(page.split())
    for rule in RULES:
        assert f"### {rule.id}\n" in page
        assert f"*{rule.severity}: {rule.title}.* {rule.why} **Fix.** {rule.fix}" in words


def test_lint_needs_nothing_but_the_base_install(web):
    """`pipx run corelane limits lint` is to be light and quick."""
    code = (
        "import sys, json\nfrom corelane.cli import main\n"
        f"try: main(['limits', 'lint', {str(web)!r}], prog_name='corelane')\n"
        "except SystemExit: pass\n"
        "print(json.dumps(sorted({m.partition('.')[0] for m in sys.modules})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = set(json.loads(done.stdout.splitlines()[-1]))
    assert not modules & {"numpy", "aiohttp", "h2", "google", "structlog", "asyncio", "rich"}


def test_what_a_manifest_writes_into_a_terminal_is_harmless(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(WEB.replace("name: app", 'name: "a\\e[31m\\nb"'))
    result = run(path)
    assert "\x1b" not in result.stdout
    assert len(result.stdout.splitlines()) == 1


@pytest.mark.parametrize("form", ["json", "sarif"])
def test_a_baseline_leaves_new_findings(tmp_path, web, form):
    baseline = tmp_path / "baseline"
    baseline.write_text(run(web, "-o", form).stdout)
    same = run(web, "--baseline", baseline)
    assert (same.exit_code, same.stdout) == (0, "")
    assert "; 1 in the baseline" in same.stderr
    web.write_text(f"# moved\n{WEB}---\n{WEB.replace('name: app', 'name: side')}")
    more = run(web, "--baseline", baseline)
    assert more.exit_code == 1
    assert [line.split(": ")[2] for line in more.stdout.splitlines()] == [
        "Deployment shop/web, container side"
    ]
    web.write_text(f"{WEB}---\n{WEB}")
    assert len(run(web, "--baseline", baseline).stdout.splitlines()) == 1, "one of two alike is new"


def test_the_rule_about_comments_is_explained_and_listed(tmp_path):
    assert "ignores nothing" in run("--explain", "bad-ignore").stdout
    assert "bad-ignore" in run("--rules").stdout
    (tmp_path / "a.yaml").write_text(f"# corelane: ignore\n{CLEAN}")
    (one,) = json.loads(run(tmp_path, "-o", "sarif").stdout)["runs"]
    (result,) = one["results"]
    assert one["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "bad-ignore"


def test_findings_of_a_renamed_file_are_known(tmp_path, web):
    baseline = tmp_path / "baseline.json"
    baseline.write_text(run(web, "-o", "json").stdout)
    other = tmp_path / "other.yaml"
    other.write_text(WEB)
    assert run(other, "--baseline", baseline).exit_code == 1, "web.yaml is there, so its findings are its own"
    web.unlink()
    assert run(other, "--baseline", baseline).exit_code == 0
    other.write_text(f"{WEB}---\n{WEB}")
    assert len(run(other, "--baseline", baseline).stdout.splitlines()) == 1


def test_a_finding_that_became_more_severe_is_new(tmp_path, web):
    baseline = tmp_path / "baseline.json"
    web.write_text(WEB.replace("cpu: 200m", "cpu: 3"))
    baseline.write_text(run(web, "-o", "json").stdout)
    assert run(web, "--baseline", baseline, "--fail-on", "info").exit_code == 0
    web.write_text(WEB)
    assert "error cpu-limit" in run(web, "--baseline", baseline).stdout


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"findings": [{}]}', '{"runs": 3}', '{"findings": 1}', "3"]
)
def test_a_baseline_that_is_no_report_is_one_line(tmp_path, web, text):
    baseline = tmp_path / "baseline.json"
    baseline.write_text(text)
    result = run(web, "--baseline", baseline)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert f"--baseline {baseline}: is not a report" in line
    baseline.unlink()
    assert run(web, "--baseline", baseline).exit_code == 2


def test_input_without_an_object_is_accepted_on_request_only(tmp_path):
    (tmp_path / "a.yaml").write_text("a: 1\n")
    assert run(tmp_path / "a.yaml").exit_code == 2
    result = run(tmp_path / "a.yaml", "--allow-empty")
    assert (result.exit_code, "Error" in result.stderr) == (0, False)
    (tmp_path / "b.yaml").write_text("a: [\n")
    assert run(tmp_path / "b.yaml", "--allow-empty").exit_code == 2
