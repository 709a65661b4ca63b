"""`corelane allocate` from the command line: states, manifests, forms, and bad input."""

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from corelane import node
from corelane.cli import main
from corelane.cpuset import CPUSet
from corelane.machine.spec import parse_spec
from corelane.node import codec
from corelane.node.kubelet import checkpoint
from corelane.node.kubelet.checkpoint import Checkpoint
from support.node_asks import container, pod

SPEC = "socket:1 core:8 smt:2"
MACHINE = ("--machine", SPEC)
POD = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: main
    resources: {limits: {cpu: "2", memory: 1Gi}}
  - name: helper
    resources: {limits: {cpu: 500m, memory: 1Gi}}
"""


def run(*args: str) -> Result:
    return CliRunner().invoke(main, ["allocate", *map(str, args)])


def answered(*args: str) -> dict:
    result = run(*args, "-o", "json")
    assert result.exit_code in (0, 1), result.output
    return json.loads(result.stdout)


def fails(*args: str) -> str:
    result = run(*args)
    assert result.exit_code == 2, result.output
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("Error: ")
    return last


def file(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def state(tmp_path: Path, default="0-1,4-9,12-15", entries=None) -> Path:
    sets = {"u1": {"app": CPUSet.parse("2,10")}, "u2": {"db": CPUSet.parse("3,11")}}
    content = checkpoint.encode(Checkpoint("static", CPUSet.parse(default), entries or sets))
    return file(tmp_path / "cpu_manager_state", content)


def test_an_empty_machine_answers_with_cpus_steps_and_a_runner_up():
    found = answered("--cpus", "2", *MACHINE, "--reserved-cpus", "0", "--policy", "static")
    only = found["containers"][0]
    assert found["admitted"] is True
    assert only["cpus"] == "1,9"
    assert only["runnerUp"] == "2,10"
    assert {"numa", "core"} <= {step["step"] for step in only["steps"]}
    assert found["reserved"] == "0"


def test_what_a_kubelet_has_handed_out_is_respected(tmp_path):
    args = ("--cpus", "2", *MACHINE, "--state", state(tmp_path), "--reserved-cpus", "0")
    assert answered(*args)["containers"][0]["cpus"] == "1,9"
    assert answered(*args, "--option", "distribute-cpus-across-cores=true")["containers"][0]["cpus"] == "1,4"
    text = run(*args).stdout
    for word in ("u1/app", "2,10", "whole cores", "reserved"):
        assert word in text


def test_a_ledger_of_corelanes_is_respected_too(tmp_path):
    ledger = node.new(parse_spec(SPEC), node.NodeConfig(reserved=CPUSet([0])))
    ledger, decision = node.admit(ledger, pod("u1", container("app", 4000)))
    taken = decision.assignments["app"]
    path = file(tmp_path / "ledger.json", codec.encode(ledger))
    found = answered("--cpus", "2", *MACHINE, "--state", path, "--reserved-cpus", "0")
    assert CPUSet.parse(found["containers"][0]["cpus"]).isdisjoint(taken)
    broken = file(
        tmp_path / "broken.json", codec.encode(ledger).replace(b"corelane-ledger", b"corelane-ledger", 1)[:-9]
    )
    assert str(broken) in fails("--cpus", "2", *MACHINE, "--state", broken)


def test_a_pod_from_a_manifest_has_all_its_containers_told(tmp_path):
    found = answered("-f", file(tmp_path / "pod.yaml", POD), *MACHINE)
    assert found["qosClass"] == "Guaranteed"
    assert [(line["name"], line["exclusive"]) for line in found["containers"]] == [
        ("main", True),
        ("helper", False),
    ]


VM = """
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {{name: vm}}
spec: {{template: {{metadata: {{annotations: {annotations}}}, spec: {{domain: {domain}}}}}}}
"""
DEDICATED = "dedicatedCpuPlacement: true"
PINNED = f"memory: {{guest: 1Gi}}, cpu: {{{DEDICATED}"
ISOLATED = f"{PINNED}, isolateEmulatorThread: true"
TO_EVEN = "{alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity: ''}"


@pytest.mark.parametrize(
    ("domain", "annotations", "count"),
    [
        (f"{{{ISOLATED}, cores: 3}}}}", "{}", 4),
        (f"{{{PINNED}, sockets: 2, threads: 2}}}}", "{}", 4),
        (f"{{cpu: {{{DEDICATED}}}, resources: {{limits: {{cpu: 2, memory: 2Gi}}}}}}", "{}", 2),
        (f"{{{ISOLATED}, cores: 2}}}}", TO_EVEN, 4),
        (f"{{{ISOLATED}, cores: 1}}}}", TO_EVEN, 2),
        (f"{{{PINNED}, cores: 2}}, ioThreads: {{supplementalPoolThreadCount: 2}}}}", "{}", 4),
        (f"{{cpu: {{{DEDICATED}, cores: 2}}, memory: {{hugepages: {{pageSize: 1Gi}}}}}}", "{}", 2),
        ("{cpu: {cores: 4}, memory: {guest: 2Gi}}", "{}", 0),
        ("{cpu: {cores: 2, isolateEmulatorThread: true}}", "{}", 0),
        ("{}", "{}", 0),
    ],
)
def test_a_virtual_machine_is_the_pod_that_kubevirt_makes_of_it(tmp_path, domain, annotations, count):
    text = VM.format(domain=domain, annotations=annotations)
    found = answered("-f", file(tmp_path / "vm.yaml", text), "--machine", "core:8 smt:2")
    (container,) = found["containers"]
    assert (container["name"], container["exclusive"]) == ("compute", count > 0)
    assert found["qosClass"] == ("Guaranteed" if count else "Burstable")
    assert not count or len(CPUSet.parse(container["cpus"])) == count


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            f"{{template: {{spec: {{domain: {{{ISOLATED}}}}}}}}}}}",
            "domain.cpu: dedicatedCpuPlacement without",
        ),
        ("{instancetype: {name: u1.small}, template: {}}", "spec.instancetype: its CPUs are not read"),
        ("{template: {spec: {domain: []}}}", "domain: is missing or not an object"),
        ("{template: {spec: {}}}", "domain: is missing or not an object"),
    ],
)
def test_a_virtual_machine_without_known_cpus_is_refused(tmp_path, spec, message):
    text = f"apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {{name: vm}}\nspec: {spec}\n"
    assert message in fails("-f", file(tmp_path / "vm.yaml", text), "--machine", "core:8")


@pytest.mark.parametrize(
    ("kind", "fields", "count"),
    [
        ("Deployment", "replicas: 3", 3),
        ("StatefulSet", "replicas: null", 1),
        ("ReplicationController", "", 1),
        ("DaemonSet", "", 1),
        ("Job", "parallelism: 3, completions: 2", 2),
        ("Job", "completions: 5", 1),
    ],
)
def test_a_workload_has_as_many_pods_as_replicas(tmp_path, kind, fields, count):
    template = '{spec: {containers: [{name: a, resources: {limits: {cpu: "1", memory: 1Gi}}}]}}'
    spec = ", ".join(filter(None, (fields, f"template: {template}")))
    service = "---\napiVersion: v1\nkind: Service\nmetadata: {name: s}\n"
    path = file(tmp_path / "w.yaml", f"kind: {kind}\nmetadata: {{name: w}}\nspec: {{{spec}}}\n{service}")
    result = run("-f", path, *MACHINE, "-o", "json")
    found = json.loads(result.stdout)
    pods = found.get("pods", [found])
    assert len({one["pod"] for one in pods}) == len(pods) == count
    assert len({one["containers"][0]["cpus"] for one in pods}) == count, "each has CPUs of its own"
    assert "note: skipped, without pods known here: 1 Service" in result.stderr


def test_pods_of_several_manifests_are_admitted_in_their_order(tmp_path):
    paths = [file(tmp_path / f"{name}.yaml", POD.replace("web", name)) for name in ("one", "two")]
    found = answered("-f", paths[0], "-f", paths[1], *MACHINE)["pods"]
    first, second = (CPUSet.parse(pod["containers"][0]["cpus"]) for pod in found)
    assert first and second
    assert first.isdisjoint(second)
    assert answered("-f", paths[0], *MACHINE)["containers"][0]["cpus"] == str(first)


def test_the_column_exclusive_counts_exclusive_cpus_only(tmp_path):
    rows = run("-f", file(tmp_path / "pod.yaml", POD), *MACHINE).stdout.splitlines()
    counts = {row.split()[0]: row.split()[2] for row in rows if row.strip().startswith(("main ", "helper "))}
    assert counts == {"main": "2", "helper": "-"}


def test_the_drawing_is_svg_with_the_owners(tmp_path):
    result = run("--cpus", "2", *MACHINE, "--state", state(tmp_path), "--reserved-cpus", "0", "-o", "svg")
    assert result.exit_code == 0
    assert ElementTree.fromstring(result.stdout).tag.endswith("svg")
    assert "default/request/app" in result.stdout
    assert "u2/db" in result.stdout


NUMA = ("--machine", "socket:2 numa:1 core:4 smt:2 mem:16G")
MEMORY = ("--memory-policy", "Static", "--reserved-memory", "0:memory=1Gi")
GPUS = ("--node-device", "nvidia.com/gpu=gpu0@0,gpu1@1,gpu2")


def test_memory_huge_pages_and_devices_are_handed_out_beside_cpus():
    found = answered(
        "--cpus", "2", "--memory", "4Gi", "--hugepages", "2Mi=512Mi", "--device", "nvidia.com/gpu=1",
        *NUMA, *MEMORY, *GPUS, "--node-memory", "1:hugepages-2Mi=1Gi", "--topology-policy", "restricted",
    )  # fmt: skip
    (only,) = found["containers"]
    assert only["devices"] == {"nvidia.com/gpu": ["gpu1"]}
    assert only["memory"] == [
        {"resource": "hugepages-2Mi", "size": 512 << 20, "nodes": "1"},
        {"resource": "memory", "size": 4 << 30, "nodes": "1"},
    ]
    assert only["cpus"] == "4,12"
    assert [one["resource"] for one in only["merge"]["providers"]] == [
        "nvidia.com/gpu",
        "cpu",
        "memory",
        "hugepages-2Mi",
    ]
    assert (only["merge"]["nodes"], only["merge"]["preferred"]) == ("1", True)
    assert only["merge"]["providers"][2]["sets"] == [
        {"nodes": "1", "preferred": True},
        {"nodes": "0-1", "preferred": False},
    ]


def test_hints_their_merge_and_the_winner_are_in_the_table_and_in_the_drawing():
    devices = ("--cpus", "2", "--memory", "4Gi", "--device", "nvidia.com/gpu=1", *NUMA, *MEMORY, *GPUS)
    args = (*devices, "--policy", "static")
    table = run(*args).stdout
    chosen = "app: NUMA node 0 chosen by the topology manager (preferred)"
    for words in (chosen, "nvidia.com/gpu", "4Gi", "gpu0"):
        assert words in table
    texts = list(ElementTree.fromstring(run(*args, "-o", "svg").stdout).itertext())
    assert chosen in texts
    assert "app: memory 4Gi NUMA node 0" in texts


def test_providers_that_find_no_set_in_common_are_shown_with_what_each_said():
    args = ("--cpus", "2", "--memory", "4Gi", "--device", "nvidia.com/gpu=3", *NUMA, *MEMORY, *GPUS)
    result = run(*args, "--topology-policy", "single-numa-node", "-o", "json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["reason"] == "TopologyAffinityError"
    merge = found["containers"][0]["merge"]
    assert merge["admitted"] is False
    assert merge["providers"][0]["word"] == "impossible"


def test_the_kubelets_file_says_the_memory_managers_settings(tmp_path):
    config = """
    memoryManagerPolicy: Static
    reservedMemory: [{numaNode: 1, limits: {memory: 2Gi}}]
    systemReserved: {cpu: "1"}
    cpuManagerPolicy: static
    featureGates: {PodLevelResourceManagers: true}
    topologyManagerPolicy: restricted
    topologyManagerScope: pod
    """
    pod_level = """
    kind: Pod
    metadata: {name: web}
    spec:
      resources: {requests: {cpu: "3", memory: 15Gi}, limits: {cpu: "3", memory: 15Gi}}
      containers:
      - {name: own, resources: {limits: {cpu: "2", memory: 4Gi}}}
      - {name: rest}
    """
    args = ("-f", file(tmp_path / "pod.yaml", pod_level), *NUMA)
    found = answered(*args, "--kubelet-config", file(tmp_path / "kubelet.yaml", config))
    own, rest = found["containers"]
    assert (len(CPUSet.parse(own["cpus"])), len(CPUSet.parse(rest["cpus"]))) == (2, 1)
    assert [block["size"] >> 30 for block in (*own["memory"], *rest["memory"])] == [4, 11]
    assert found["merge"]["nodes"] == "0"
    assert found["notes"] == []
    assert "PodLevelResourceManagers" in answered(*args)["notes"][0]


def test_a_ledger_with_memory_and_devices_is_respected(tmp_path):
    machine = parse_spec(NUMA[1])
    memory = node.MemoryOptions("Static", {0: {"memory": 1 << 30}})
    gpus = {"nvidia.com/gpu": {"gpu0": 1, "gpu1": 2, "gpu2": 0}}
    numa = node.TopologyOptions("best-effort")
    before = node.new(machine, node.NodeConfig(memory=memory, devices=gpus, numa=numa))
    first = replace(container("c", 1000), devices={"nvidia.com/gpu": 1})
    before, _ = node.admit(before, pod("a", first))
    path = file(tmp_path / "ledger.json", codec.encode(before))
    args = ("--cpus", "1", "--memory", "1Gi", "--device", "nvidia.com/gpu=1", "--state", path)
    found = answered(*args, *NUMA, *MEMORY, *GPUS)
    assert found["containers"][0]["devices"] == {"nvidia.com/gpu": ["gpu1"]}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--memory", "much"), "--memory: 'much' is not a size"),
        (("--memory", "-1Gi"), "--memory: -1Gi is negative"),
        (("--hugepages", "2Mi"), "--hugepages: '2Mi' is not SIZE=AMOUNT"),
        (("--hugepages", "2Mi=3Mi"), "3Mi is not a multiple of the page size 2Mi"),
        (("--hugepages", "0=1Mi"), "not a multiple of the page size 0"),
        (("--device", "gpu"), "--device: 'gpu' is not NAME=COUNT"),
        (("--device", "gpu=-1"), "--device: 'gpu=-1'"),
        (("--device", "g=1", "--device", "g=2"), "--device: g is given twice"),
        (("--node-device", "gpu"), "--node-device: 'gpu' is not NAME=ID@NODE"),
        (("--node-device", "gpu=a@x"), "--node-device: 'a@x' is not ID or ID@NODE"),
        (("--node-device", "gpu=a,a"), "--node-device: gpu: device a is given twice"),
        (("--node-device", "gpu=a@9"), "a is near NUMA node 9"),
        (("--memory-policy", "Dynamic"), "'Dynamic' is not one of"),
        (("--memory-policy", "Static"), "you should specify the system reserved memory"),
        (("--reserved-memory", "0:memory=1Gi"), "--reserved-memory: memory manager policy None"),
        (("--memory-policy", "Static", "--reserved-memory", "9:memory=1Gi"), "NUMA node 9 does not exist"),
        (("--memory-policy", "Static", "--reserved-memory", "memory"), "--reserved-memory: 'memory' is not"),
        (MEMORY, "give --memory, such as 4Gi"),
        (("--node-memory", "0:swap=1Gi"), "--node-memory: 'swap' is invalid: use memory"),
        (("--node-memory", "0:hugepages-2Mi=3Mi"), "not a multiple of the page size"),
        (("--node-memory", "0:hugepages-2Mi=30Gi"), "less memory than huge pages"),
        (("--node-memory", "5:memory=1Gi"), "--node-memory: NUMA node 5 does not exist"),
        (("--feature-gate", "PodLevelResourceManagers"), "is not NAME=VALUE"),
        (("--feature-gate", "PodLevelResourceManagers=2"), "bad value for option"),
        (("--feature-gate", "Else=true"), "--feature-gate: Else"),
    ],
)
def test_bad_memory_and_devices_are_named(args, words):
    assert words in fails("--cpus", "2", *NUMA, *args)


def test_a_manifest_says_its_own_memory(tmp_path):
    assert "need --cpus" in fails("-f", file(tmp_path / "pod.yaml", POD), "--memory", "1Gi")


def test_a_refusal_exits_with_1_and_says_why():
    result = run("--cpus", "3", *MACHINE, "--option", "full-pcpus-only=true")
    assert result.exit_code == 1
    assert "SMTAlignmentError" in result.stdout


def test_a_release_of_the_kubelet_answers_exactly_and_corelane_keeps_a_shared_cpu():
    args = (
        "--cpus",
        "15",
        "--machine",
        SPEC,
        "--reserved-cpus",
        "0",
        "--option",
        "strict-cpu-reservation=true",
    )
    assert answered(*args, "--kubernetes-version", "1.36")["admitted"] is True
    assert answered(*args)["admitted"] is False


def test_releases_differ():
    args = ("--cpus", "128", "--machine", "socket:2 numa:4 core:16 smt:2", "--reserved-cpus", "0")
    args += ("--option", "distribute-cpus-across-numa=true", "--topology-policy", "none")
    old, new = (answered(*args, "--kubernetes-version", v)["containers"][0]["cpus"] for v in ("1.36", "1.38"))
    assert old != new


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "--cpus N or -f"),
        (("--cpus", "2", "-f", __file__), "either"),
        (("--cpus", "-1"), "negative"),
        (("--cpus", "two"), "two"),
        (("--cpus", "2", "--machine", "socket:0"), "socket:0"),
        (("--cpus", "2", *MACHINE, "--reserved-cpus", "0-99"), "0-99"),
        (("--cpus", "2", *MACHINE, "--reserved", "99"), "99"),
        (("--cpus", "2", *MACHINE, "--option", "no-such=true"), "no-such"),
        (("--cpus", "2", *MACHINE, "--topology-option", "no-such=true"), "no-such"),
        (("--cpus", "2", *MACHINE, "--topology-policy", "strange"), "strange"),
        (("--cpus", "2", *MACHINE, "--kubernetes-version", "9"), "'9'"),
        (
            (
                "--cpus", "2", *MACHINE, "--option", "full-pcpus-only=true",
                "--option", "distribute-cpus-across-cores=true",
            ),
            "can not be used at the same time",
        ),
        (("--cpus", "2", *MACHINE, "--state", "/nowhere/state"), "/nowhere/state"),
    ],
)  # fmt: skip
def test_bad_input_is_named(args, words):
    assert words in fails(*args)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a: [", "not YAML"),
        ("", "no object"),
        (POD + "---\n" + POD + "---\nkind: Job", "object 3: spec"),
        (
            "kind: Deployment\nspec: {replicas: many, template: {spec: {containers: [{name: a}]}}}",
            "replicas: 'many'",
        ),
        (
            "kind: Deployment\nspec: {replicas: 1001, template: {spec: {containers: [{name: a}]}}}",
            "more than 1000",
        ),
        (
            "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nspec: {tasks: []}",
            "has only Job.batch.volcano.sh, and no pods",
        ),
        (POD.encode("utf-16"), ":1:1: is UTF-16 text"),
        (b"kind: Pod\n---\n\xef\xbb\xbf" + POD.encode(), ":3:1: has a byte order mark"),
        ("- 1", "list"),
        ("kind: Service", "Service"),
        ("kind: Deployment", "spec"),
        ("kind: Pod", "spec.containers"),
        (POD.replace('"2"', "lots"), "lots"),
        (POD.replace('"2"', '"-2"'), "-2"),
        ("kind: Pod\nspec: {containers: 3}", "containers"),
    ],
)
def test_a_bad_manifest_is_named_with_its_fault(tmp_path, content, words):
    path = file(tmp_path / "pod.yaml", content)
    told = fails("-f", path, *MACHINE)
    assert words in told
    assert str(path) in told


def test_a_state_that_does_not_fit_says_which_rule_fails(tmp_path):
    told = fails("--cpus", "2", *MACHINE, "--state", state(tmp_path), "--reserved-cpus", "2")
    assert "not all reserved cpus" in told
    assert "state verify" in told
    bent = file(tmp_path / "bent", state(tmp_path).read_bytes().replace(b"2,10", b"2,12"))
    assert "corrupted" in fails("--cpus", "2", *MACHINE, "--state", bent)
