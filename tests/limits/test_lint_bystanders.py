"""Containers that hardly matter: init containers alone in their pod, waiting ones, operators' own."""

import json

import pytest

from corelane.limits.lint.idle import ends_at_once, only_prepares_files, only_waits, waits_for_another
from corelane.limits.lint.located import located
from corelane.limits.lint.policy import Severity
from support.manifests import amounts, container, findings, only, report, rules, workload

NOTHING = "{}"
APP = container(amounts("500m"))
SIDECAR = ", restartPolicy: Always"


def init(resources: str, *, more: str = "") -> str:
    return container(resources, name="first", more=more)


def severities(text: str) -> dict[str, Severity]:
    return {one.rule: one.severity for one in findings(text)}


def test_an_init_container_alone_in_its_pod_has_the_weight_of_the_whole_pod():
    assert rules(workload(APP, init=(init(amounts("")),))) == set()


def test_an_init_container_is_not_reported_beside_a_container_whose_request_would_be_its_own():
    text = workload(container(NOTHING), init=(init(NOTHING),))
    found = only("no-cpu-request", text)
    assert (found.container, found.severity) == ("app", Severity.WARNING)
    assert "under contention it gets the smallest share" in found.message


def test_an_init_container_of_a_pod_that_only_waits_then_has_the_smallest_share():
    pause = "{name: pause, image: registry.k8s.io/pause:3.10, resources: {}}"
    found = only("no-cpu-request", workload(pause, init=(init(NOTHING),)))
    assert (found.container, found.severity) == ("first", Severity.INFO)
    assert "under contention it gets the smallest share" in found.message


def test_beside_a_sidecar_without_a_request_an_init_container_is_reported_too():
    before = container(NOTHING, name="mesh", more=SIDECAR)
    text = workload(container(NOTHING), init=(init(NOTHING), before, container(NOTHING, name="second")))
    found = [one.container for one in findings(text) if one.rule == "no-cpu-request"]
    assert found == ["mesh", "second", "app"]


def test_beside_a_sidecar_that_started_before_it_an_init_container_has_the_smallest_share():
    before = container(amounts("100m"), name="mesh", more=SIDECAR)
    assert only("no-cpu-request", workload(APP, init=(before, init(amounts(""))))).container == "first"
    assert rules(workload(APP, init=(init(amounts("")), before))) == set()


def test_a_container_in_a_pod_with_requests_competes_with_its_own_pod():
    text = workload(APP, container(amounts(""), name="proxy"))
    message = only("no-cpu-request", text).message
    assert "beside busy containers of its pod it gets the smallest share" in message
    assert "the pod is Burstable" in message


def test_an_init_containers_memory_between_request_and_limit_is_no_more_than_information():
    text = workload(
        container(amounts("500m", "128Mi", memory_limit="128Mi")),
        init=(init(amounts("100m", "128Mi", memory_limit="192Mi")),),
    )
    assert severities(text) == {"memory-limit-not-request": Severity.INFO}


@pytest.mark.parametrize(("apps", "found"), [("192Mi", False), ("191Mi", True)])
def test_memory_that_the_pods_other_containers_reserve_is_there_for_an_init_container(apps, found):
    text = workload(
        container(amounts("500m", apps, memory_limit=apps)),
        init=(init(amounts("100m", "128Mi", memory_limit="192Mi")),),
    )
    assert ("memory-limit-not-request" in rules(text)) is found


def custom(kind: str, group: str, spec: str) -> str:
    return f"apiVersion: {group}/v1\nkind: {kind}\nmetadata: {{name: web}}\nspec: {spec}\n"


POD = f"{{template: {{spec: {{containers: [{container(NOTHING)}]}}}}}}"


@pytest.mark.parametrize(
    ("kind", "group", "spec"),
    [
        ("Alertmanager", "monitoring.coreos.com", "{replicas: 1}"),
        ("Prometheus", "monitoring.coreos.com", "{replicas: 1}"),
        ("Service", "serving.knative.dev", POD),
        ("Notebook", "kubeflow.org", POD),
    ],
)
def test_no_qos_class_is_stated_for_a_pod_to_which_an_operator_adds(kind, group, spec):
    message = only("no-cpu-request", custom(kind, group, spec)).message
    assert "BestEffort" not in message
    assert not message.endswith((" ", ";"))


@pytest.mark.parametrize("text", [workload(container(NOTHING)), custom("Rollout", "argoproj.io", POD)])
def test_the_qos_class_is_stated_where_the_manifest_has_the_whole_pod(text):
    assert "the pod is BestEffort" in only("no-cpu-request", text).message


def test_a_knative_service_does_not_lose_a_class_that_its_queue_proxy_keeps_from_it():
    whole = f"{{template: {{spec: {{containers: [{container(amounts('1', limit='1'))}]}}}}}}"
    assert "Guaranteed" not in only("cpu-limit", custom("Service", "serving.knative.dev", whole)).fix
    assert "no longer Guaranteed" in only("cpu-limit", custom("Rollout", "argoproj.io", whole)).fix


SETUP = """work_dir="$(pwd)"
mkdir -p "$XDG_CONFIG_HOME/nats"
cd "$XDG_CONFIG_HOME/nats"
if ! [ -s context ]; then
  ln -s /etc/nats-contexts context
fi
if ! [ -f context.txt ]; then
  echo -n "default" > context.txt
fi
cd "$work_dir"
exec /entrypoint.sh "$@"
"""
WAITING = [
    ["sleep", "infinity"],
    ["/bin/sleep", "365d"],
    ["sleep", "604800"],
    ["tail", "-f", "/dev/null"],
    ["/bin/sh", "-c", "sleep 360000"],
    ["sh", "-c", "echo share-manager image pulled && sleep infinity"],
    ["/bin/bash", "-c", "--", "while true; do sleep 30; done;"],
    ["bash", "-ec", "trap 'exit 0' TERM\nsleep infinity & wait"],
    ["/usr/bin/tini", "--", "sleep", "inf"],
    ["sh", "-c", "exec tail -f /dev/null"],
    ["sh", "-ec", "trap true INT TERM; sleep infinity & wait"],
    ["/entrypoint.sh", "sh", "-ec", "trap true INT TERM; sleep infinity & wait"],
    ["docker-entrypoint.sh", "sleep", "infinity"],
    ["sh", "-c", 'exec "$@"', "--", "sleep", "infinity"],
    ["sh", "-ec", SETUP, "--", "sh", "-ec", "trap true INT TERM; sleep infinity & wait\n"],
    ["tini", "--", "/docker-entrypoint.sh", "tail", "-f", "/dev/null"],
    ["bash", "-ec", "#!/bin/bash\nsleep infinity\n"],
    ["bash", "-e", "-c", "# keeps the volume mounted; nothing else\nsleep infinity"],
    ["sh", "-c", "touch /tmp/healthy; sleep 30; rm -f /tmp/healthy; sleep 600"],
]
WORKING = [
    [],
    ["nginx"],
    ["sh", "-c", "sleep 10; exec nginx"],
    ["sh", "-c", "while true; do date >> /data/index.html; sleep 1; done"],
    ["sh", "-c", "until curl backend; do sleep 2; done"],
    ["sh", "-c", "echo $(curl backend); sleep infinity"],
    ["sh", "-c", "sleep infinity & nginx"],
    ["sh", "-c", "echo ready"],
    ["sh", "-c", "while true; do true; done"],
    ["sh", "-c"],
    ["sh", "run.sh", "sleep"],
    ["tail", "-f", "/var/log/app.log"],
    ["python", "-c", "sleep 10"],
    ["/entrypoint.sh"],
    ["/entrypoint.sh", "nats-server"],
    ["sh", "-c", 'exec "$@"', "--", "nats-server"],
    ["sh", "-c", 'exec "$@"', "sleep"],
    ["sh", "-c", 'exec supervisor "$@"', "--", "sleep", "infinity"],
    ["sh", "-c", 'nginx & exec "$@"', "--", "sleep", "infinity"],
    ["sh", "-c", 'PORT=80 nginx & exec "$@"', "--", "sleep", "infinity"],
    ["sh", "-c", 'X=$(curl backend); exec "$@"', "--", "sleep", "infinity"],
    ["sh", "-c", 'if [ "$(curl backend)" ]; then echo up; fi; exec "$@"', "--", "sleep", "infinity"],
]


@pytest.mark.parametrize("command", WAITING, ids=" ".join)
def test_a_command_that_only_waits_is_known(command):
    assert only_waits(located({"image": "ubuntu", "command": command}))
    assert only_waits(located({"image": "ubuntu", "command": command[:1], "args": command[1:]}))


@pytest.mark.parametrize("command", WORKING, ids=lambda words: " ".join(words) or "image's own")
def test_a_command_that_works_is_not_taken_for_waiting(command):
    assert not only_waits(located({"image": "ubuntu", "command": command}))


ENDING = [
    ["true"],
    ["/bin/true"],
    ["sh", "-c", "exit 0"],
    ["/bin/sh", "-c", 'echo "Pulling complete"'],
    ["echo", "hi"],
]
PREPARING = [
    ["/bin/cp", "-n", "/usr/local/bin/argocd", "/shared/argocd-dex"],
    ["sh", "-c", "/bin/cp /bin/argocd /run/argocd && /bin/ln -sf /run/argocd /run/cmp"],
    ["sh", "-c", "sysctl -w kernel.core_pattern=/data/core.proxy && ulimit -c unlimited"],
    [
        "sh",
        "-ec",
        'N="$(sysctl -n fs.file-max)"\nif [[ "$N" -lt 9 ]]; then\n  sysctl -w vm.max_map_count=9\nfi',
    ],
    ["bash", "-e", "-c", "set -e\n# so that uid 1000 writes\nmkdir -p /data\nchown -R 1000:1000 /data"],
    ["sh", "-c", "cp /ro/flags.json /rw/flags.json && cat /rw/flags.json"],
    ["sh", "-c", "cp /in/app.conf /out && sed -i s/HOST/db/ /out/app.conf > /dev/null 2>&1"],
]
CHECKING = [
    ["sh", "-c", "until nc -z -v -w30 kafka 9092; do echo waiting for kafka; sleep 2; done;"],
    ["sh", "-c", "until curl -sf http://api/healthz >/dev/null 2>&1; do sleep 2; done"],
    ["bash", "-ec", "while ! pg_isready -h $DB_HOST -p 5432; do\n  echo waiting\n  sleep 1\ndone\n"],
    ["timeout", "600", "sh", "-c", "until nslookup zookeeper-2; do\n  sleep 3;\ndone;\n"],
    ["timeout", "-k", "5", "2m", "sh", "-c", "until nc -z db 5432; do sleep 3; done"],
    ["sh", "-c", "while [ ! -f /certs/ca.crt ]; do sleep 1; done; echo found"],
    ["sh", "-c", "until /usr/bin/getent hosts db; do echo $(date) no db yet; sleep 2; done"],
    ["sh", "-c", "until nslookup db.$(cat /run/secrets/namespace).svc; do echo waiting; sleep 2; done"],
    ["sh", "-c", "for i in $(seq 1 30); do if nc -z db 5432; then exit 0; fi; sleep 1; done; exit 1"],
    [
        "sh",
        "-c",
        "n=0; while [ $n -lt 9 ]; do if wget -qO- es | grep -q ok; then break; fi; n=$((n+1)); sleep 1; done",
    ],
]
LASTING = [
    ["sh", "-c", "while true; do echo spin; done"],
    ["sh", "-c", "echo $(curl backend)"],
    ["sh", "-c", "echo start; nginx"],
    ["sh", "-c", "for f in /in/*; do cp $f /out; done; nginx"],
    ["sh", "-c", "cp /a /b && python train.py"],
    ["cpd", "/a"],
    ["echo-server"],
    ["sh", "-c", "cp /a /b && install.sh"],
    ["sh", "-c", "cat /etc/config | python -"],
    ["sh", "-c", "until curl -sf http://api; do sleep 2; done; exec /app"],
    ["sh", "-c", "until curl -sf http://api; do :; done"],
    ["sh", "-c", "until migrate up; do sleep 2; done"],
    ["sh", "-c", "while true; do curl http://front; sleep 1; done"],
    ["sh", "-c", "curl -o /data/model.bin http://models/big; sleep 1"],
    ["sh", "-c", "until curl -sf $(render /templates); do sleep 2; done"],
    ["sh", "-c", "until curl -sf http://api | tee >(load); do sleep 2; done"],
    ["sh", "-c", "until curl -sf http://api/dump | psql; do sleep 2; done"],
]


@pytest.mark.parametrize("command", ENDING, ids=" ".join)
def test_a_command_that_does_nothing_is_not_judged(command):
    node = {"image": "x", "command": command}
    assert ends_at_once(located(node))
    assert not ends_at_once(located({"image": "argoexec", "args": command}))
    assert rules(workload(APP, f"{{name: main, image: x, command: {json.dumps(command)}}}")) == set()


@pytest.mark.parametrize("command", PREPARING, ids=" ".join)
def test_a_container_that_only_prepares_files_needs_no_memory_limit(command):
    assert only_prepares_files(located({"image": "x", "command": command}))
    assert not ends_at_once(located({"image": "x", "command": command}))
    copies = (
        f"{{name: copy, image: x, command: {json.dumps(command)}, resources: {{requests: {{cpu: 10m}}}}}}"
    )
    assert "memory-limit-missing" not in rules(workload(APP, init=(copies,)))


@pytest.mark.parametrize("command", CHECKING, ids=" ".join)
def test_an_init_container_that_waits_for_another_service_needs_no_memory_limit(command):
    node = located({"image": "x", "command": command})
    assert waits_for_another(node)
    assert waits_for_another(located({"image": "x", "command": command[:1], "args": command[1:]}))
    assert not only_waits(node)
    checks = f"{{name: wait, image: x, command: {json.dumps(command)}, resources: {{}}}}"
    assert rules(workload(APP, init=(checks,))) == set()
    assert "memory-limit-missing" in rules(workload(APP, checks))


@pytest.mark.parametrize("command", LASTING, ids=" ".join)
def test_a_command_that_goes_on_to_work_is_judged(command):
    assert not ends_at_once(located({"image": "x", "command": command}))
    assert not only_prepares_files(located({"image": "x", "command": command}))
    assert not waits_for_another(located({"image": "x", "command": command}))


@pytest.mark.parametrize(
    ("image", "waits"),
    [
        ("registry.k8s.io/pause:3.10.2", True),
        ("gcr.io/google-containers/pause-amd64:3.1", True),
        ("registry:5000/pause@sha256:00", True),
        ("pause", True),
        ("shop/pauser:1", False),
        ("pause/app:1", False),
    ],
)
def test_the_pause_image_only_waits(image, waits):
    assert only_waits(located({"image": image})) is waits


@pytest.mark.parametrize(
    ("image", "args", "waits"),
    [
        ("registry.k8s.io/e2e-test-images/agnhost:2.53", ["pause"], True),
        ("agnhost", ["pause"], True),
        ("agnhost", ["netexec"], False),
        ("agnhost", [], False),
        ("shop/music", ["pause"], False),
    ],
)
def test_the_test_image_of_kubernetes_waits_where_it_is_told_to_pause(image, args, waits):
    assert only_waits(located({"image": image, "args": args})) is waits


@pytest.mark.parametrize("hook", ["livenessProbe", "readinessProbe", "startupProbe", "lifecycle"])
def test_what_the_kubelet_runs_in_a_container_is_work(hook):
    assert not only_waits(located({"image": "x", "command": ["sleep", "inf"], hook: {"exec": {}}}))


@pytest.mark.parametrize(
    ("probe", "waits"),
    [
        ({"exec": {"command": ["cat", "/tmp/healthy"]}}, True),
        ({"exec": {"command": ["/usr/bin/test", "-f", "/tmp/healthy"]}}, True),
        ({"exec": {"command": ["sh", "-c", "curl backend"]}}, False),
        ({"exec": {"command": ["cat", "$(curl backend)"]}}, False),
        ({"httpGet": {"port": 80}}, False),
    ],
)
def test_a_probe_that_looks_at_a_file_is_no_work(probe, waits):
    assert only_waits(located({"command": ["sleep", "inf"], "livenessProbe": probe})) is waits


def test_a_waiting_container_is_not_judged_by_what_it_would_use():
    waiting = f"{{name: pull, image: app, command: {json.dumps(['sleep', 'infinity'])}, resources: %s}}"
    for resources in (
        "{}",
        amounts("10m", "8Mi", limit="20m", memory_limit="16Mi"),
        amounts("10m", memory_limit=""),
    ):
        assert rules(workload(APP, waiting % resources)) == set()
    assert "bad-quantity" in rules(workload(APP, waiting % "{requests: {cpu: many}}"))
    assert report(workload(waiting % "{}")).workloads == 1


def test_gomaxprocs_from_a_missing_limit_is_what_go_takes_by_itself():
    env = ", env: [{name: %s, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}]"
    found = only("threads-follow-limit", workload(container(amounts("10m"), more=env % "GOMAXPROCS")))
    assert found.severity is Severity.INFO
    assert "as without the variable" in found.message
    assert "requests.cpu" not in found.fix
    other = only("threads-follow-limit", workload(container(amounts("10m"), more=env % "OMP_NUM_THREADS")))
    assert other.severity is Severity.WARNING


def scaler(metric: str) -> str:
    target = f"{{type: Resource, resource: {{name: {metric}, target: {{averageUtilization: 80}}}}}}"
    spec = f"{{scaleTargetRef: {{kind: Deployment, name: web}}, metrics: [{target}]}}"
    kind = "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler"
    return f"---\n{kind}\nmetadata: {{name: up}}\nspec: {spec}\n"


@pytest.mark.parametrize(("request_", "percent"), [("500m", "200 %"), ("1", "100 %"), ("300m", "333 %")])
def test_the_utilisation_at_which_a_limit_caps_an_autoscaler_is_stated(request_, percent):
    text = workload(container(amounts(request_, limit="1"))) + scaler("cpu")
    fix = only("cpu-limit", text).fix
    assert f"utilisation may then exceed {percent}, so HorizontalPodAutoscaler up scales sooner" in fix


@pytest.mark.parametrize(
    "text",
    [
        workload(container(amounts("500m", limit="1"))) + scaler("memory"),
        workload(container(amounts("500m", limit="1")), container(amounts("1"), name="b")) + scaler("cpu"),
    ],
    ids=["by memory", "another container is not capped"],
)
def test_an_autoscaler_that_the_limit_does_not_cap_is_not_mentioned(text):
    assert "utilisation" not in only("cpu-limit", text).fix


@pytest.mark.parametrize(
    ("written", "evicted"),
    [
        ("priorityClassName: high", False),
        ("priority: 0", True),
        ("priority: -10", True),
        ("priorityClassName: system-cluster-critical", False),
        ("priorityClassName: system-node-critical", False),
        ("priority: 1000", False),
        ("priority: 2000000000", False),
    ],
)
def test_pods_with_a_priority_are_not_said_to_be_evicted_first(written, evicted):
    spec = f"{{{written}, containers: [{container(NOTHING)}]}}"
    text = f"{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {spec}}}"
    message = only("no-cpu-request", text).message
    assert "the pod is BestEffort" in message
    assert ("first to be evicted" in message) is evicted


def test_other_pods_are_killed_before_node_critical_ones():
    def message(name: str) -> str:
        resources = amounts("500m", "128Mi", memory_limit="192Mi")
        spec = f"{{priorityClassName: {name}, containers: [{container(resources)}]}}"
        text = f"{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {spec}}}"
        return only("memory-limit-not-request", text).message

    assert "this container is among the first killed" in message("system-cluster-critical")
    assert "others are killed" in message("system-node-critical")


@pytest.mark.parametrize(
    ("command", "soon"),
    [
        ("timeout, '60', sh, -c, work", True),
        ("/usr/bin/timeout, -k, '5', -s, KILL, 10m, work", True),
        ("timeout, --signal=KILL, '601', work", False),
        ("timeout, 1h, work", False),
        ("timeout, '0', work", False),
        ("sh, -c, 'timeout 60 work'", False),
        ("timeout", False),
        ("work, timeout, '60', x", False),
    ],
)
def test_memory_of_what_ends_soon_is_no_more_than_information(command, soon):
    text = workload(container("{requests: {cpu: 500m}}", more=f", command: [{command}]"))
    assert severities(text)["memory-limit-missing"] is (Severity.INFO if soon else Severity.WARNING)


@pytest.mark.parametrize(
    ("where", "seconds", "soon"), [(0, 600, True), (0, 601, False), (1, 60, True), (2, 60, True)]
)
def test_a_deadline_ends_the_containers_of_a_job_soon(where, seconds, soon):
    deadline = [""] * 3
    deadline[where] = f"activeDeadlineSeconds: {seconds}, "
    pod = f"template: {{spec: {{{deadline[1]}containers: [{container('{requests: {cpu: 500m}}')}]}}}}"
    job = f"{{apiVersion: batch/v1, kind: Job, metadata: {{name: j}}, spec: {{{deadline[0]}{pod}}}}}"
    if where == 2:
        job = (
            "{apiVersion: batch/v1, kind: CronJob, metadata: {name: j}, spec: {jobTemplate: {spec: "
            f"{{{deadline[2]}{pod}}}}}}}}}"
        )
    assert severities(job)["memory-limit-missing"] is (Severity.INFO if soon else Severity.WARNING)


@pytest.mark.parametrize(
    ("more", "waits"),
    [
        ("", True),
        (", args: [10s]", True),
        (", args: ['3600']", True),
        (", args: [work]", False),
        (", command: [work], args: [10s]", False),
    ],
)
def test_an_image_of_a_sleep_only_waits(more, waits):
    text = workload(container(NOTHING, more=more)).replace("image: app", "image: 'k8s-staging/sleep:latest'")
    assert (rules(text) == set()) is waits
