"""Labels and annotations of pods, as people write them: what they mean, and what is said when nothing."""

import json

import pytest

from corelane.cpuset import CPUSet
from corelane.kube import keys, translate
from corelane.kube.translate import TranslationError
from corelane.kube.translate.placement_annotations import ResourceStatus, placement_spec, resource_status
from corelane.kube.translate.placement_record import dump_resource_status
from corelane.machine.spec import parse_spec
from corelane.workload import (
    Band,
    BindPolicy,
    CPUPolicy,
    ExclusivePolicy,
    Exclusivity,
    LabelRequirement,
    NUMAPolicy,
    NUMAStrategy,
    Operator,
    PlacementSpec,
    PodCPUAffinity,
    PodQOS,
    Selector,
    TopologyLevel,
)
from support.pods import container, guaranteed, pod

SERVER = parse_spec("socket:2 numa:2 core:2 smt:2", name="n")
SPEC, NUMA = keys.RESOURCE_SPEC, keys.NUMA_TOPOLOGY_SPEC
EXPRESSIONS = "matchExpressions"
FULL, SPREAD = BindPolicy.FULL_PCPUS, BindPolicy.SPREAD_BY_PCPUS


def asked(annotations=None, labels=None, priority=0):
    return pod(
        "a", container("x", "cpu=1"), annotations=annotations or {}, labels=labels or {}, priority=priority
    )


def test_a_pod_without_annotations_has_an_empty_spec():
    assert placement_spec(asked()) == PlacementSpec()
    assert translate.request(guaranteed("a", "2")).placement_spec == PlacementSpec()


def test_a_request_has_the_labels_and_the_placement_spec():
    found = translate.request(
        asked({SPEC: '{"preferredCPUBindPolicy":"FullPCPUs"}'}, {keys.QOS_CLASS: "LSR", "app": "x"})
    )
    assert found.labels["app"] == "x"
    assert (found.placement_spec.qos, found.placement_spec.bind, found.placement_spec.bind_required) == (
        PodQOS.LSR,
        FULL,
        False,
    )


@pytest.mark.parametrize("name", list(PodQOS))
def test_every_class_is_known(name):
    assert placement_spec(asked(labels={keys.QOS_CLASS: name})).qos is PodQOS(name)


@pytest.mark.parametrize(
    ("label", "priority", "expected"),
    [
        (None, 0, None),
        (None, 9000, Band.PROD),
        (None, 9999, Band.PROD),
        (None, 10000, None),
        (None, 7500, Band.MID),
        (None, 5999, Band.BATCH),
        (None, 3000, Band.FREE),
        (None, 2_000_000_000, None),
        ("koord-batch", 9500, Band.BATCH),
        ("", 9500, None),
    ],
)
def test_a_priority_lies_in_a_band_unless_a_label_names_one(label, priority, expected):
    labels = {} if label is None else {keys.PRIORITY_CLASS: label}
    assert placement_spec(asked(labels=labels, priority=priority)).band is expected


@pytest.mark.parametrize(
    ("spec", "bind", "required", "exclusive"),
    [
        ({}, None, False, None),
        ({"preferredCPUBindPolicy": "FullPCPUs"}, FULL, False, None),
        ({"preferredCPUBindPolicy": "Default"}, None, False, None),
        ({"preferredCPUBindPolicy": None}, None, False, None),
        ({"requiredCPUBindPolicy": "SpreadByPCPUs"}, SPREAD, True, None),
        (
            {"requiredCPUBindPolicy": "SpreadByPCPUs", "preferredCPUBindPolicy": "FullPCPUs"},
            SPREAD,
            True,
            None,
        ),
        ({"requiredCPUBindPolicy": "Default", "preferredCPUBindPolicy": "FullPCPUs"}, None, True, None),
        ({"requiredCPUBindPolicy": "", "preferredCPUBindPolicy": "FullPCPUs"}, FULL, False, None),
        ({"preferredCPUBindPolicy": "ConstrainedBurst"}, BindPolicy.CONSTRAINED_BURST, False, None),
        ({"preferredCPUExclusivePolicy": "PCPULevel"}, None, False, ExclusivePolicy.PCPU_LEVEL),
        ({"preferredCPUExclusivePolicy": "NUMANodeLevel"}, None, False, ExclusivePolicy.NUMA_NODE_LEVEL),
        ({"preferredCPUExclusivePolicy": "None"}, None, False, ExclusivePolicy.NONE),
        ({"preferredCPUExclusivePolicy": "Default"}, None, False, None),
        ({"somethingNew": 7}, None, False, None),
    ],
)
def test_resource_spec(spec, bind, required, exclusive):
    found = placement_spec(asked({SPEC: json.dumps(spec)}))
    assert (found.bind, found.bind_required, found.exclusive_policy) == (bind, required, exclusive)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"numaTopologyPolicy": "SingleNUMANode"}, PlacementSpec(numa=NUMAPolicy.SINGLE_NUMA_NODE)),
        ({"numaTopologyPolicy": ""}, PlacementSpec()),
        ({"numaTopologyPolicy": "None"}, PlacementSpec(numa=NUMAPolicy.NONE)),
        ({"numaTopologyPolicy": " None "}, PlacementSpec(numa=NUMAPolicy.NONE)),
        ({"singleNUMANodeExclusive": "Required"}, PlacementSpec(numa_exclusive=True)),
        ({"singleNUMANodeExclusive": "Preferred"}, PlacementSpec(numa_exclusive=False)),
        (
            {"numaAllocateStrategy": "DistributeEvenly"},
            PlacementSpec(strategy=NUMAStrategy.DISTRIBUTE_EVENLY),
        ),
    ],
)
def test_numa_topology_spec(spec, expected):
    assert placement_spec(asked({NUMA: json.dumps(spec)})) == expected


def test_a_cpu_affinity_of_the_longest_length_is_read():
    assert placement_spec(asked({keys.CPU_AFFINITY: "[]".ljust(4096)})) == PlacementSpec()


def test_empty_and_null_annotations_say_nothing():
    for key in (SPEC, NUMA, keys.EXCLUSIVE, keys.CPU_AFFINITY):
        for text in ("", " ", "null"):
            assert placement_spec(asked({key: text})) == PlacementSpec()


def test_exclusivity_and_affinity():
    found = placement_spec(
        asked(
            {
                keys.EXCLUSIVE: '{"level":"l3","required":true}',
                keys.CPU_AFFINITY: '[{"avoid":{"matchLabels":{"app":"a"}},"level":"core","required":true},'
                '{"prefer":{"matchLabels":{"app":"b","tier":"x"}},"level":"numa"},{"avoid":{},"level":"core"}]',
                keys.CORE_KIND: "E",
            }
        )
    )
    assert found.exclusive == Exclusivity(TopologyLevel.L3, required=True)
    assert found.affinities == (
        PodCPUAffinity(True, TopologyLevel.CORE, Selector({"app": "a"}), required=True),
        PodCPUAffinity(False, TopologyLevel.NUMA, Selector({"app": "b", "tier": "x"})),
        PodCPUAffinity(True, TopologyLevel.CORE, Selector({})),
    )
    assert found.core_kind == "E"
    assert placement_spec(asked({keys.EXCLUSIVE: '{"level":"core"}'})).exclusive == Exclusivity(
        TopologyLevel.CORE
    )


def test_a_selector_may_have_expressions_as_kubernetes_has():
    rules = [
        {"key": "app", "operator": "In", "values": ["a", "b"]},
        {"key": "tier", "operator": "NotIn", "values": ["x"]},
        {"key": "loud", "operator": "Exists"},
        {"key": "quiet", "operator": "DoesNotExist", "values": []},
    ]
    term = {"avoid": {"matchLabels": {"team": "t"}, EXPRESSIONS: rules}, "level": "core"}
    (found,) = placement_spec(asked({keys.CPU_AFFINITY: json.dumps([term])})).affinities
    assert found.others == Selector(
        {"team": "t"},
        (
            LabelRequirement("app", Operator.IN, ("a", "b")),
            LabelRequirement("tier", Operator.NOT_IN, ("x",)),
            LabelRequirement("loud", Operator.EXISTS),
            LabelRequirement("quiet", Operator.DOES_NOT_EXIST),
        ),
    )
    assert str(found.others) == "team=t,app in (a,b),tier notin (x),loud,!quiet"


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        (SPEC, '{"preferredCpuBindPolicy":"FullPCPUs"}', PlacementSpec(bind=FULL)),
        (SPEC, '{"REQUIREDCPUBINDPOLICY":"SpreadByPCPUs"}', PlacementSpec(bind=SPREAD, bind_required=True)),
        (SPEC, '{"preferredCPUBindPolicy":" FullPCPUs "}', PlacementSpec(bind=FULL)),
        (SPEC, '{"requiredCPUBindPolicy":" "}', PlacementSpec()),
        (NUMA, '{"numatopologypolicy":"Restricted"}', PlacementSpec(numa=NUMAPolicy.RESTRICTED)),
        (keys.EXCLUSIVE, '{"Level":"core"}', PlacementSpec(exclusive=Exclusivity(TopologyLevel.CORE))),
    ],
)
def test_names_are_read_in_any_case_as_gos_json_does(key, text, expected):
    assert placement_spec(asked({key: text})) == expected


@pytest.mark.parametrize("policy", list(CPUPolicy))
def test_gocranes_policies(policy):
    found = placement_spec(asked({keys.CRANE_CPU_POLICY: policy, keys.CRANE_AWARENESS: "T"}))
    assert (found.cpu_policy, found.topology_aware) == (policy, True)
    assert placement_spec(asked({keys.CRANE_AWARENESS: "false"})).topology_aware is False


@pytest.mark.parametrize(
    ("key", "text", "where", "why"),
    [
        (SPEC, "{", "", "not a JSON object"),
        (SPEC, "[]", "", "not a JSON object"),
        (SPEC, "[" * 5000, "", "not a JSON object"),
        (SPEC, '{"requiredCPUBindPolicy":"Full"}', ".requiredCPUBindPolicy", "use FullPCPUs, SpreadByPCPUs,"),
        (SPEC, '{"preferredCPUBindPolicy":1}', ".preferredCPUBindPolicy", "or Default"),
        (SPEC, '{"preferredCPUExclusivePolicy":"L3"}', ".preferredCPUExclusivePolicy", "PCPULevel"),
        (NUMA, '{"numaTopologyPolicy":"Strict"}', ".numaTopologyPolicy", "use BestEffort, Restricted, Sin"),
        (NUMA, '{"singleNUMANodeExclusive":"Yes"}', ".singleNUMANodeExclusive", "use Required or Preferred"),
        (NUMA, '{"numaAllocateStrategy":"Even"}', ".numaAllocateStrategy", "or DistributeEvenly"),
        (keys.EXCLUSIVE, '{"required":true}', ".level", "use core, l3 or numa"),
        (keys.EXCLUSIVE, '{"level":"L4"}', ".level", "use core, l3 or numa"),
        (keys.EXCLUSIVE, '{"level":"core","required":"ja"}', ".required", "use true or false"),
        (keys.CPU_AFFINITY, "{}", "", "not a JSON list"),
        (keys.CPU_AFFINITY, "[7]", "[0]", "not a JSON object"),
        (keys.CPU_AFFINITY, '[{"level":"core"}]', "[0]", 'either "avoid" or "prefer"'),
        (keys.CPU_AFFINITY, '[{"avoid":{},"prefer":{},"level":"core"}]', "[0]", 'either "avoid" or "prefer"'),
        (keys.CPU_AFFINITY, '[{"avoid":null,"level":"core"}]', "[0]", 'either "avoid" or "prefer"'),
        (
            keys.CPU_AFFINITY,
            '[{"avoid":{"matchFields":[]},"level":"core"}]',
            "[0].avoid",
            "matchFields is unknown: use matchLabels or matchExpressions",
        ),
        (keys.CPU_AFFINITY, " " * 4097, "", "4097 characters are more than 4096: use fewer terms"),
        (EXPRESSIONS, "{}", "", "not a JSON list"),
        (EXPRESSIONS, "[7]", "[0]", "not a JSON object"),
        (EXPRESSIONS, '[{"operator":"Exists"}]', "[0].key", "must be the key of a label"),
        (EXPRESSIONS, '[{"key":"","operator":"Exists"}]', "[0].key", "must be the key of a label"),
        (EXPRESSIONS, '[{"key":"a"}]', "[0].operator", "use In, NotIn, Exists or DoesNotExist"),
        (EXPRESSIONS, '[{"key":"a","operator":"in"}]', "[0].operator", "use In, NotIn, Exists or"),
        (EXPRESSIONS, '[{"key":"a","operator":"In"}]', "[0].values", "must have at least one for In"),
        (EXPRESSIONS, '[{"key":"a","operator":"NotIn","values":[]}]', "[0].values", "at least one for NotIn"),
        (EXPRESSIONS, '[{"key":"a","operator":"In","values":"b"}]', "[0].values", "not a JSON list"),
        (EXPRESSIONS, '[{"key":"a","operator":"In","values":[1]}]', "[0].values", "must be strings"),
        (
            EXPRESSIONS,
            '[{"key":"a","operator":"Exists","values":["b"]}]',
            "[0].values",
            "must be empty for Exists",
        ),
        (
            keys.CPU_AFFINITY,
            '[{"avoid":{"matchLabels":{"a":1}},"level":"l3"}]',
            "[0].avoid.matchLabels",
            "strings",
        ),
        (keys.CORE_KIND, "X", "", "use P, M or E"),
        (keys.CRANE_CPU_POLICY, "share", "", "use none, numa, exclusive or immovable"),
        (keys.CRANE_AWARENESS, "yes", "", "use true or false"),
    ],
)
def test_an_invalid_value_is_named_with_what_is_allowed(key, text, where, why):
    if key == EXPRESSIONS:
        key, where = keys.CPU_AFFINITY, f"[0].avoid.{EXPRESSIONS}{where}"
        text = f'[{{"avoid":{{"{EXPRESSIONS}":{text}}},"level":"core"}}]'
    with pytest.raises(TranslationError) as caught:
        translate.request(asked({key: text}))
    assert caught.value.field == f"metadata.annotations[{key}]{where}"
    assert why in caught.value.why
    assert len(str(caught.value)) < 600


def test_broken_labels_are_named_too():
    with pytest.raises(
        TranslationError, match=r"^metadata.labels\[koordinator.sh/qosClass\]: invalid value 'LSX': use LSE, "
    ):
        translate.request(asked(labels={keys.QOS_CLASS: "LSX"}))


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"no\nsuch\u202e": "0-3"}),
        json.dumps({"n" * 9000: "0-3"}),
        json.dumps({"x": "x" * 9000}),
        json.dumps({"x": 7}),
        json.dumps({"x": {"y": ["z\n" * 500]}}),
    ],
)
def test_an_error_is_one_line_of_limited_length(text):
    bound = pod("a", container("x", "cpu=1"), annotations={keys.CONTAINER_CPUSETS: text}, node="n")
    with pytest.raises(TranslationError) as caught:
        translate.request(bound)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 850


STATUS = {
    "cpuset": "0-3,8",
    "numaNodeResources": [{"node": 0, "resources": {"cpu": "4", "memory": "8Gi"}}, {"node": 1}],
}


def test_resource_status_is_read_and_written_as_upstream_does():
    found = resource_status({keys.RESOURCE_STATUS: json.dumps(STATUS)})
    assert found == ResourceStatus(CPUSet([0, 1, 2, 3, 8]), {0: {"cpu": "4", "memory": "8Gi"}, 1: {}})
    assert found.zone is None
    written = '{"cpuset":"0-3,8","numaNodeResources":[{"node":0,"resources":{"cpu":"4","memory":"8Gi"}}]}'
    assert dump_resource_status(ResourceStatus(found.cpus, {0: found.amounts[0]})) == written
    assert dump_resource_status(ResourceStatus()) == "{}"


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ('{"cpuSharedPools":[{"socket":0,"node":1}]}', [1]),
        ('{"cpuSharedPools":[{"socket":1,"node":2},{"socket":1,"node":3,"cpuset":"9"}]}', [2, 3]),
        (
            '{"numaNodeResources":[{"node":1,"resources":{"cpu":"500m"}},{"node":2,"resources":{"memory":"1"}}]}',
            [1],
        ),
        ('{"numaNodeResources":[{"node":0,"resources":{"kubernetes.io/batch-cpu":"1000"}}]}', [0]),
        ('{"cpuset":"1","cpuSharedPools":[{"socket":0,"node":1}]}', None),
        ("{}", None),
    ],
)
def test_a_pod_without_exclusive_cpus_runs_in_the_pools_of_its_status(text, zone):
    assert resource_status({keys.RESOURCE_STATUS: text}).zone == (None if zone is None else CPUSet(zone))
    bound = pod("a", container("x", "cpu=1"), annotations={keys.RESOURCE_STATUS: text}, node="n")
    assert translate.request(bound).zone == (None if zone is None else CPUSet(zone))
    assert translate.request(asked({keys.RESOURCE_STATUS: text})).zone is None


def test_a_status_is_read_in_any_case_of_its_names_as_gos_json_does():
    parts = '"NumaNodeResources":[{"Node":1,"Resources":{"cpu":"1"}}],"cpusharedpools":[{"NODE":2}]'
    found = resource_status({keys.RESOURCE_STATUS: f'{{"CPUSet":"0",{parts}}}'})
    assert found == ResourceStatus(CPUSet([0]), {1: {"cpu": "1"}}, ((0, 2),))


def test_pools_are_written_beside_exclusive_cpus_of_some_containers():
    found = pod("a", container("x", "cpu=1"), container("y", "cpu=1"))
    record = translate.proposal_annotations({}, found, SERVER, CPUSet([1]))
    assert json.loads(record[keys.RESOURCE_STATUS]) == {
        "numaNodeResources": [{"node": 1, "resources": {"cpu": "2"}}],
        "cpuSharedPools": [{"socket": 0, "node": 1}],
    }
    record = translate.proposal_annotations({"x": CPUSet([3])}, found, SERVER, CPUSet([1]))
    assert translate.proposed_cpus(record, ["x", "y"]) == {"x": CPUSet([3])}
    assert json.loads(record[keys.RESOURCE_STATUS]) == {"cpuSharedPools": [{"socket": 0, "node": 1}]}
    assert resource_status(record).zone == CPUSet([1])


def test_how_a_pod_is_split_over_several_pools_is_not_guessed():
    record = translate.proposal_annotations({}, pod("a", container("x", "cpu=1")), SERVER, CPUSet([0, 2]))
    assert json.loads(record[keys.RESOURCE_STATUS]) == {
        "cpuSharedPools": [{"socket": 0, "node": 0}, {"socket": 1, "node": 2}]
    }


def test_a_common_set_says_how_much_of_it_is_on_which_numa_node():
    record = translate.proposal_annotations({"x": CPUSet([0, 2])}, pod("a", container("x", "cpu=2")), SERVER)
    assert json.loads(record[keys.RESOURCE_STATUS]) == {
        "cpuset": "0,2",
        "numaNodeResources": [
            {"node": 0, "resources": {"cpu": "1"}},
            {"node": 1, "resources": {"cpu": "1"}},
        ],
    }


def test_immovable_cpus_are_not_published_to_koordinator_as_taken():
    found = pod("a", container("x", "cpu=1"), annotations={keys.CRANE_CPU_POLICY: "immovable"})
    assert set(translate.proposal_annotations({"x": CPUSet([1])}, found)) == {keys.CONTAINER_CPUSETS}
