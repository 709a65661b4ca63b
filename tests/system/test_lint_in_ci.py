"""The pre-commit hook and the GitHub Action, from this checkout: the real pre-commit, the real shell."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.system
ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
LIMITED = """\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: app
    image: app:1
    resources: {requests: {cpu: 200m, memory: 1Gi}, limits: {LIMITS}}
"""
BAD, GOOD = (LIMITED.replace("LIMITS", limits) for limits in ("cpu: 200m, memory: 1Gi", "memory: 1Gi"))


def git(directory: Path, *words: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "commit.gpgsign=false")
    return subprocess.check_output(["git", "-C", directory, *identity, *words], text=True)


def repository(directory: Path) -> str:
    """Commit everything below; return the commit."""
    git(directory, "init", "-q")
    git(directory, "add", "-A")
    git(directory, "commit", "-q", "-m", "all")
    return git(directory, "rev-parse", "HEAD").strip()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """This checkout with what is not committed yet, as a repository of its own."""
    to = tmp_path_factory.mktemp("corelane")
    names = git(ROOT, "ls-files", "-co", "--exclude-standard", "-z").split("\0")
    for name in filter(None, names):
        source = ROOT / name
        if source.is_file() and not source.is_symlink():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, to / name)
    repository(to)
    return to


def pre_commit_program() -> str:
    beside = Path(sys.executable).parent / "pre-commit"
    found = str(beside) if beside.exists() else shutil.which("pre-commit")
    return found or pytest.skip("pre-commit is not installed: pip install -r tests/system/requirements.txt")


def skip_without_network(output: str) -> None:
    if re.search(r"No matching distribution|NewConnectionError|Could not find a version", output):
        pytest.skip("no package registry in reach: corelane's dependencies cannot be installed")


@pytest.fixture(scope="module")
def hooked(checkout, tmp_path_factory):
    """A repository with the hook; calling the result stages one file and runs pre-commit."""
    program, work = pre_commit_program(), tmp_path_factory.mktemp("work")
    hook = {"id": "corelane-limits-lint"}
    commit = git(checkout, "rev-parse", "HEAD").strip()
    config = {"repos": [{"repo": str(checkout), "rev": commit, "hooks": [hook]}]}
    (work / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    repository(work)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment["PRE_COMMIT_HOME"] = str(tmp_path_factory.mktemp("home"))
    install = [program, "install-hooks"]
    done = subprocess.run(install, cwd=work, env=environment, capture_output=True, text=True, timeout=600)
    if done.returncode:
        skip_without_network(done.stdout + done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr

    def commit_files(**files: str) -> subprocess.CompletedProcess:
        git(work, "reset", "-q", "--hard")
        for name, text in files.items():
            (work / name.replace("__", ".")).write_text(text)
        git(work, "add", "-A")
        words = [program, "run", "--color=never"]
        return subprocess.run(words, cwd=work, env=environment, capture_output=True, text=True, timeout=120)

    return commit_files


def test_the_hook_stops_a_commit_with_a_finding_and_names_line_and_rule(hooked):
    done = hooked(a__yaml=BAD)
    assert done.returncode == 1
    assert re.search(r"a\.yaml:8:\d+: error cpu-limit: ", done.stdout)


@pytest.mark.parametrize(
    ("files", "outcome"),
    [
        ({"a__yaml": GOOD}, "Passed"),
        ({"notes__json": '{"name": "x"}'}, "Passed"),
        ({"a__txt": BAD}, "Skipped"),
    ],
    ids=["clean", "not Kubernetes", "not YAML"],
)
def test_the_hook_lets_other_commits_through(hooked, files, outcome):
    done = hooked(**files)
    assert (done.returncode, outcome in done.stdout) == (0, True), done.stdout


class Runner:
    """Runs the action's steps as GitHub's runner does: expressions become texts, `bash -eo pipefail`."""

    def __init__(self, checkout: Path, directory: Path) -> None:
        self.temporary, self.work = directory / "temp", directory / "work"
        self.temporary.mkdir()
        self.work.mkdir()
        self.checkout = checkout

    def step(self, step: dict, **inputs: str) -> tuple[int, str, dict[str, str]]:
        assert "${{" not in step["run"]
        assert step["shell"] == "bash"
        values = {f"inputs.{name}": one["default"] for name, one in ACTION["inputs"].items()}
        values |= {f"inputs.{name.replace('_', '-')}": value for name, value in inputs.items()}
        values["github.action_path"] = str(self.checkout)
        settings = {key: EXPRESSION.sub(lambda m: values[m[1]], one) for key, one in step["env"].items()}
        outputs, script = self.temporary / "outputs", self.temporary / "script.sh"
        outputs.write_text("")
        script.write_text(step["run"])
        base = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        base |= {"RUNNER_TEMP": str(self.temporary), "GITHUB_OUTPUT": str(outputs)}
        words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", script]
        done = subprocess.run(
            words, cwd=self.work, env=base | settings, capture_output=True, text=True, timeout=600
        )
        pairs = dict(line.split("=", 1) for line in outputs.read_text().splitlines())
        return done.returncode, done.stdout + done.stderr, pairs

    def lint(self, **inputs: str) -> tuple[int, str, dict[str, str]]:
        return self.step(ACTION["runs"]["steps"][1], **inputs)


@pytest.fixture(scope="module")
def runner(checkout, tmp_path_factory) -> Runner:
    one = Runner(checkout, tmp_path_factory.mktemp("runner"))
    (one.work / "venv.py").write_text("raise SystemExit('imported from the linted repository')")
    status, text, _ = one.step(ACTION["runs"]["steps"][0])
    if status:
        skip_without_network(text)
    assert status == 0, text
    (one.work / "bad.yaml").write_text(BAD)
    (one.work / "good file.yaml").write_text(GOOD)
    return one


def test_the_action_fails_on_a_finding_and_writes_sarif_and_table(runner):
    status, text, outputs = runner.lint(output="a.sarif")
    assert (status, outputs) == (1, {"sarif": "a.sarif", "exit-status": "1"})
    results = json.loads((runner.work / "a.sarif").read_text())["runs"][0]["results"]
    assert [one["ruleId"] for one in results] == ["cpu-limit"]
    assert "bad.yaml:8:" in text


def test_the_inputs_of_the_action_are_options_of_lint(runner):
    (runner.work / "policy.yml").write_text("failOn: never\n")
    assert runner.lint(paths="good file.yaml\n\n")[0] == 0
    assert runner.lint(paths="bad.yaml\ngood file.yaml", fail_on="never")[0] == 0
    base = runner.lint(paths="bad.yaml", output="c.sarif")[2]["sarif"]
    assert runner.lint(paths="bad.yaml", baseline=base, output="d.sarif")[0] == 0
    for name, value in (("exclusive_cpus", "true"), ("exclusive_cpus", "false"), ("node_cpus", "16")):
        assert runner.lint(paths="good file.yaml", **{name: value})[0] == 0
    assert runner.lint(paths="bad.yaml", policy="policy.yml")[0] == 0


HOSTILE = (
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned;",
    "' && touch pwned '",
    '"; touch pwned; "',
    "--output=json",
    "-h",
    "*.yaml",
    "a\nexit-status=0",
    "${{ github.token }}",
)


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("name", [name for name in ACTION["inputs"] if name != "output"])
def test_no_input_of_the_action_is_run_or_taken_as_an_option(runner, name, value):
    status, text, outputs = runner.lint(**{"paths": "good file.yaml", name.replace("-", "_"): value})
    assert (status, outputs["exit-status"]) == (2, "2"), text
    assert not list(runner.work.glob("pwned*"))


@pytest.mark.parametrize("value", HOSTILE)
def test_the_output_of_the_action_is_a_file_name_or_refused(runner, value):
    status, text, outputs = runner.lint(paths="good file.yaml", output=value)
    assert not (runner.work / "pwned").exists()
    assert outputs["exit-status"] == str(status)
    assert status == 2 or (runner.work / value).read_text().startswith("{"), text
    (runner.work / value).unlink(missing_ok=True)
