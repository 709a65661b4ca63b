import json

import pytest
from msgspec import structs

from corelane.cpuset import CPUSet
from corelane.kube import keys, translate
from corelane.kube.pod import Pod, PodStatus, ResourceRequirements
from corelane.kube.translate import TranslationError
from corelane.reasons import Code, Reason
from corelane.workload.request import ContainerKind, PodResources, QOSClass
from support.pods import amounts, container, guaranteed, pod

WHOLE = "cpu=2 memory=1Gi"


def test_an_ask_says_what_every_container_wants_init_containers_first() -> None:
    request = translate.request(
        pod(
            "a",
            container("main", "cpu=1500m memory=1Gi hugepages-2Mi=8Mi hugepages-1Gi=2Gi"),
            container("half", "cpu=0.5 memory=1M", "cpu=1"),
            init=(container("setup", "cpu=4"), container("mesh", "cpu=100m", restart_policy="Always")),
        )
    )
    assert (request.uid, request.key) == ("uid-a", "ns/a")
    kinds = [(c.name, c.kind) for c in request.containers]
    app = ContainerKind.APP
    assert kinds == [
        ("setup", ContainerKind.INIT),
        ("mesh", ContainerKind.SIDECAR),
        ("main", app),
        ("half", app),
    ]
    main, half = request.containers[2:]
    assert (main.cpu_request, main.cpu_limit) == (1500, 1500)
    assert (main.memory_request, main.hugepages) == (2**30, {2048: 8 * 2**20, 2**20: 2**31})
    assert (half.cpu_request, half.cpu_limit, half.memory_request, half.memory_limit) == (500, 1000, 10**6, 0)
    assert request.cpu_request == 4000


def test_an_absent_request_is_the_limit() -> None:
    (main,) = translate.request(pod("a", container("main", "", WHOLE))).containers
    assert (main.cpu_request, main.memory_request) == (2000, 2**30)


def test_integers_are_quantities_too() -> None:
    (main,) = translate.request(pod("a", container("main"))).containers
    assert main.cpu_request == 0
    numbers = ResourceRequirements({"cpu": 2, "memory": 64}, {})
    whole = pod("a", container("main"))
    first = type(whole.spec.containers[0])(name="main", resources=numbers)
    (main,) = translate.request(pod("a", first)).containers
    assert (main.cpu_request, main.memory_request) == (2000, 64)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (pod("a", container("x")), QOSClass.BEST_EFFORT),
        (pod("a", container("x", "cpu=0 memory=0")), QOSClass.BEST_EFFORT),
        (pod("a", container("x", "example.com/gpu=1")), QOSClass.BEST_EFFORT),
        (pod("a", container("x", WHOLE)), QOSClass.GUARANTEED),
        (pod("a", container("x", "cpu=2000m memory=1024Mi", WHOLE)), QOSClass.GUARANTEED),
        (pod("a", container("x", WHOLE, "cpu=3 memory=1Gi")), QOSClass.BURSTABLE),
        (pod("a", container("x", "cpu=2")), QOSClass.BURSTABLE),
        (pod("a", container("x", WHOLE), container("y")), QOSClass.BURSTABLE),
        (pod("a", container("x", WHOLE), init=(container("y"),)), QOSClass.BURSTABLE),
        (pod("a", container("x", WHOLE), init=(container("y", WHOLE),)), QOSClass.GUARANTEED),
        # Only sums are compared, so one container may make up for the other.
        (
            pod("a", container("x", WHOLE, "cpu=3 memory=1Gi"), container("y", "cpu=3 memory=1Gi", WHOLE)),
            QOSClass.GUARANTEED,
        ),
        # Pod-level resources stand in for the containers'.
        (
            pod("a", container("x"), resources=ResourceRequirements(amounts(WHOLE), amounts(WHOLE))),
            "Guaranteed",
        ),
        (pod("a", container("x", WHOLE), resources=ResourceRequirements(amounts(WHOLE), {})), "Burstable"),
        (
            pod("a", container("x"), resources=ResourceRequirements(amounts("cpu=1"), amounts("cpu=1"))),
            QOSClass.BURSTABLE,
        ),
        (pod("a", container("x", WHOLE), resources=ResourceRequirements()), QOSClass.BEST_EFFORT),
    ],
)
def test_qos_is_upstreams(found: Pod, expected: str) -> None:
    assert translate.qos(found) == expected


def test_a_qos_class_in_the_status_stands_unless_it_is_none() -> None:
    spec = pod("a", container("x")).spec
    assert translate.qos(Pod(spec=spec, status=PodStatus(qos_class="Guaranteed"))) == "Guaranteed"
    assert translate.qos(Pod(spec=spec, status=PodStatus(qos_class="Best"))) == "BestEffort"


def test_requests_are_what_runs_at_the_same_time() -> None:
    found = pod(
        "a",
        container("x", "cpu=1 memory=1Gi example.com/gpu=1"),
        container("y", "cpu=500m"),
        init=(
            container("before", "cpu=3"),
            container("mesh", "cpu=250m memory=1Mi", restart_policy="Always"),
            container("after", "cpu=3"),
        ),
        overhead=amounts("cpu=10m memory=1Ki"),
    )
    memory = 2**30 + 2**20 + 2**10
    assert translate.requests(found) == {"cpu": 3260, "memory": memory, "example.com/gpu": 1}


def test_pod_level_requests_stand_in_for_the_containers() -> None:
    level = ResourceRequirements(amounts("cpu=4 ephemeral-storage=9"), {})
    found = pod("a", container("x", "cpu=1 memory=5 ephemeral-storage=1"), resources=level)
    assert translate.requests(found) == {"cpu": 4000, "memory": 5, "ephemeral-storage": 1}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (
            "cpu=lots",
            r"^spec\.containers\[0\]\.resources\.requests\.cpu: invalid value 'lots': quantities must",
        ),
        (
            "memory=-1",
            r"^spec\.containers\[0\]\.resources\.requests\.memory: invalid value '-1': must be great",
        ),
        ("hugepages-x=1", r"requests\.hugepages-x: invalid value 'x': quantities"),
    ],
)
def test_a_bad_quantity_is_named(bad: str, message: str) -> None:
    with pytest.raises(TranslationError, match=message):
        translate.request(pod("a", container("main", bad)))


def test_one_set_for_all_containers_is_recorded_koordinators_way() -> None:
    lane = CPUSet.parse("0-1,8")
    found = guaranteed("a", "3")
    record = translate.proposal_annotations({"main": lane}, found)
    assert record == {"scheduling.koordinator.sh/resource-status": '{"cpuset":"0-1,8"}'}
    assert translate.proposed_cpus(record, ["main"]) == {"main": lane}


def test_containers_that_differ_are_recorded_each_and_those_that_share_left_out() -> None:
    found = pod("a", container("main", WHOLE), container("side", "cpu=1 memory=1"), container("log"))
    sets = {"side": CPUSet([2]), "main": CPUSet([0, 1])}
    record = translate.proposal_annotations(sets, found)
    assert record == {"corelane.io/container-cpusets": '{"main":"0-1","side":"2"}'}
    assert translate.proposed_cpus(record, ["main", "side", "log"]) == sets
    same = translate.proposal_annotations({"main": CPUSet([0, 1])}, found)
    assert list(same) == [keys.CONTAINER_CPUSETS]
    assert translate.proposal_annotations({}, found) == {}


def test_a_record_left_over_from_elsewhere_is_overwritten() -> None:
    copied = guaranteed("a", "2", annotations={keys.CONTAINER_CPUSETS: '{"main":"6-7"}'})
    record = copied.metadata.annotations | translate.proposal_annotations({"main": CPUSet([0, 1])}, copied)
    assert translate.proposed_cpus(record, ["main"]) == {"main": CPUSet([0, 1])}
    record = copied.metadata.annotations | translate.proposal_annotations({}, copied)
    assert translate.proposed_cpus(record, ["main"]) == {}


def test_own_sets_win_over_the_common_one() -> None:
    both = {keys.CONTAINER_CPUSETS: '{"main":"0"}', keys.RESOURCE_STATUS: '{"cpuset":"4-5"}'}
    assert translate.proposed_cpus(both, ["main", "side"]) == {"main": CPUSet([0])}


def test_a_common_set_may_be_absent_beside_other_members() -> None:
    text = '{"numaNodeResources":[{"node":0}],"cpuset":""}'
    assert translate.proposed_cpus({keys.RESOURCE_STATUS: text}, ["main"]) == {}
    assert translate.proposed_cpus({keys.RESOURCE_STATUS: "{}"}, ["main"]) == {}


@pytest.mark.parametrize(
    ("key", "text", "why"),
    [
        (keys.RESOURCE_STATUS, "{", "not a JSON object"),
        (keys.RESOURCE_STATUS, "[]", "not a JSON object"),
        (keys.RESOURCE_STATUS, "[" * 5000, "not a JSON object"),
        (keys.RESOURCE_STATUS, '{"cpuset":7}', "not a CPU list"),
        (keys.RESOURCE_STATUS, '{"cpuset":"3-1"}', "not a CPU list such as '0-3,8': invalid range"),
        (keys.RESOURCE_STATUS, '{"cpuSharedPools":{}}', "not a JSON list"),
        (keys.RESOURCE_STATUS, '{"cpuSharedPools":[{"node":-1}]}', "must be a number from 0 to 1023"),
        (keys.RESOURCE_STATUS, '{"numaNodeResources":[{"resources":{"cpu":"x"}}]}', "quantities must"),
        (keys.CONTAINER_CPUSETS, '{"main":"3-1"}', "not a CPU list such as '0-3,8': invalid range"),
        (keys.CONTAINER_CPUSETS, '{"other":"1"}', "the pod has no container 'other'"),
        (keys.CONTAINER_CPUSETS, '{"main":"0-99999999999"}', "not a CPU list"),
    ],
)
def test_a_broken_record_is_named_with_its_value(key: str, text: str, why: str) -> None:
    with pytest.raises(TranslationError) as caught:
        translate.request(guaranteed("a", "2", node="n", annotations={key: text}))
    assert caught.value.field.startswith(f"metadata.annotations[{key}]")
    assert str(caught.value).startswith(f"{caught.value.field}: invalid value ")
    assert why in caught.value.why
    assert len(str(caught.value)) < 600


def test_a_proposal_counts_only_once_the_pod_is_bound() -> None:
    record = {keys.RESOURCE_STATUS: '{"cpuset":"0-1"}'}
    assert translate.request(guaranteed("a", "2", annotations=record)).proposal == {}
    bound = guaranteed("a", "2", annotations=record, node="n")
    assert translate.request(bound).proposal == {"main": CPUSet([0, 1])}


@pytest.mark.parametrize("count", [2, 400])
def test_the_placement_of_a_bound_pod_is_read_alike_short_or_long(count: int) -> None:
    cpus = CPUSet(range(0, 2 * count, 2))
    numa = [{"node": 1, "resources": {"cpu": "2"}}]
    record = {keys.RESOURCE_STATUS: json.dumps({"cpuset": str(cpus), "numaNodeResources": numa})}
    for name in ("a", "b"):
        bound = guaranteed(name, "2", annotations=record, node="n")
        assert translate.placement(bound) == ({"main": cpus}, None, {}, {1: {"cpu": 2000}})
        request = translate.request(bound)
        assert (request.proposal, request.numa_amounts) == ({"main": cpus}, {1: {"cpu": 2000}})


def test_reasons_are_written_a_line_a_container_and_a_broken_line_counts_as_none() -> None:
    reasons = [
        Reason(Code.PROPOSAL_USED, (0b110,), "main"),
        Reason(Code.NO_CPU_REQUEST, (), "x"),
        Reason(Code.DEVICES, ("nvidia.com/gpu", ("gpu0",)), "main"),
    ]
    record = translate.reasons_annotation(reasons)
    assert translate.placement_reasons(record) == {
        "main": "CPUs 1-2 used as proposed by the scheduler; nvidia.com/gpu: gpu0",
        "x": "shared pool: no CPU request",
    }
    assert translate.reasons_annotation([]) == {}
    for text in ("{", "[]", '{"x":1}', "[" * 9999):
        broken = guaranteed("a", "2", annotations={keys.PLACEMENT_REASONS: text})
        assert translate.placement_reasons(broken.metadata.annotations) == {}


def test_extended_resources_are_devices_and_nothing_else_is() -> None:
    asked = (
        "cpu=2 memory=1Gi nvidia.com/gpu=2 hugepages-2Mi=4Mi kubernetes.io/batch-cpu=3 ephemeral-storage=1Gi"
    )
    request = translate.request(pod("a", container("main", asked)))
    assert request.containers[0].devices == {"nvidia.com/gpu": 2}


def test_resources_of_the_pod_stand_in_for_those_of_its_containers() -> None:
    main = container("main", "cpu=1 memory=1Gi")
    asked = amounts("cpu=3 memory=4Gi hugepages-2Mi=8Mi")
    level = ResourceRequirements(asked, asked)
    plain = pod("a", main)
    request = translate.request(structs.replace(plain, spec=structs.replace(plain.spec, resources=level)))
    assert request.level == PodResources(3000, 4 << 30, {2048: 8 << 20}, 4 << 30)
    assert (request.cpu_request, request.memory_request) == (3000, 4 << 30)
    (only,) = request.containers
    assert (request.exclusive_cpus(only), request.exclusive_cpus(only, gate=True)) == (0, 1)


def test_a_pod_whose_resources_name_nothing_of_its_own_is_as_without() -> None:
    plain = pod("a", container("main", WHOLE))
    level = ResourceRequirements({}, {"example.com/gpu": "1"})
    request = translate.request(structs.replace(plain, spec=structs.replace(plain.spec, resources=level)))
    assert request.level is None


@pytest.mark.parametrize(
    ("containers", "init", "level", "overhead", "expected"),
    [
        (["memory=1"], [], "", "", 1),
        (["memory=1", "memory=2"], [], "", "", 3),
        (["memory=1", ""], [], "", "", 0),
        (["memory=1", "memory=0"], [], "", "", 0),
        (["memory=1"], ["cpu=1"], "", "", 0),
        (["memory=1"], ["memory=5"], "", "", 5),
        (["memory=1"], ["sidecar memory=5"], "", "", 6),
        (["memory=1"], ["sidecar memory=5", "cpu=1"], "", "", 6),
        (["memory=1"], ["sidecar memory=5", "sidecar"], "", "", 6),
        (["memory=1"], ["cpu=1", "sidecar memory=5"], "", "", 0),
        (["memory=1", ""], ["sidecar memory=5"], "", "", 0),
        (["memory=4", "memory=4"], ["memory=5"], "", "", 8),
        (["memory=1", ""], [], "memory=7", "", 7),
        (["memory=9"], [], "memory=7", "", 7),
        (["memory=9"], [], "cpu=7", "", 9),
        (["memory=1"], [], "", "memory=3", 4),
        ([""], [], "", "memory=3", 0),
        ([""], [], "memory=7", "memory=3", 10),
    ],
)
def test_a_pods_memory_limit_is_its_own_or_the_sum_of_its_containers(
    containers: list[str], init: list[str], level: str, overhead: str, expected: int
) -> None:
    """Compared with the kubelet's `ResourceConfigForPod` of 1.36."""
    found = pod(
        "a",
        *(container(f"c{i}", "", limits) for i, limits in enumerate(containers)),
        init=tuple(
            container(f"i{i}", "", limits.removeprefix("sidecar"), "Always" if "sidecar" in limits else "")
            for i, limits in enumerate(init)
        ),
        resources=ResourceRequirements({}, amounts(level)) if level else None,
        overhead=amounts(overhead),
    )
    request = translate.request(found)
    assert request.memory_limit == expected
    own = [amounts(limits.removeprefix("sidecar")).get("memory") for limits in (*init, *containers)]
    of_pod = amounts(level).get("memory", 0)
    assert [request.memory_limit_of(one) for one in request.containers] == [
        int(limit or 0) or int(of_pod) for limit in own
    ]
