"""Labels and annotations of Nodes, the kubelet's settings as published, and what follows for its pools."""

import json
from fractions import Fraction

import pytest

from corelane import node
from corelane.cpuset import CPUSet
from corelane.kube import keys
from corelane.kube.meta import ObjectMeta
from corelane.kube.objects import Attribute, NodeResourceTopology
from corelane.kube.translate import TranslationError, ledger_annotation, node_labels
from corelane.kube.translate.node_labels import KubeletSettings, Reservation
from corelane.machine.spec import parse_spec
from corelane.node import config
from corelane.node.config import PoolOptions
from corelane.node.pools.classes import NodePolicies
from corelane.placement import topology
from corelane.workload import BindPolicy, NUMAPolicy, NUMAStrategy

FULL, SPREAD = BindPolicy.FULL_PCPUS, BindPolicy.SPREAD_BY_PCPUS
KUBELET = KubeletSettings()
TWO_NODES = topology.build([(cpu, cpu // 2, cpu // 8, cpu // 8, cpu // 8) for cpu in range(16)])


def annotated(key, value):
    return node_labels.node_labels({}, {key: value if isinstance(value, str) else json.dumps(value)})


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        (keys.NODE_BIND_POLICY, "FullPCPUsOnly", NodePolicies(bind=FULL)),
        (keys.NODE_BIND_POLICY, "SpreadByPCPUs", NodePolicies(bind=SPREAD)),
        (keys.NODE_BIND_POLICY, "None", NodePolicies()),
        (keys.NODE_BIND_POLICY, "", NodePolicies()),
        (keys.NODE_BIND_POLICY_PROPOSED, "FullPCPUsOnly", NodePolicies(bind=FULL)),
        (keys.NODE_NUMA_STRATEGY, "MostAllocated", NodePolicies(strategy=NUMAStrategy.MOST_ALLOCATED)),
        (keys.NODE_NUMA_STRATEGY, "DistributeEvenly", NodePolicies(strategy=NUMAStrategy.DISTRIBUTE_EVENLY)),
        (keys.NODE_NUMA_STRATEGY, "", NodePolicies()),
        (keys.NODE_NUMA_POLICY, "SingleNUMANode", NodePolicies(numa=NUMAPolicy.SINGLE_NUMA_NODE)),
        (keys.NODE_NUMA_ALIGNMENT, "Restricted", NodePolicies(numa=NUMAPolicy.RESTRICTED)),
        (keys.NODE_NUMA_ALIGNMENT, "None", NodePolicies(numa=NUMAPolicy.NONE)),
        (keys.NODE_NUMA_POLICY, "", NodePolicies()),
        (keys.CRANE_AWARENESS, "true", NodePolicies(numa=NUMAPolicy.SINGLE_NUMA_NODE)),
        (keys.CRANE_AWARENESS, "false", NodePolicies(numa=NUMAPolicy.NONE)),
    ],
)
def test_labels_of_a_node(key, text, expected):
    found = node_labels.node_labels({key: text}, {})
    assert (found.policies, found.faults) == (expected, ())


def test_the_codes_spelling_wins_over_the_proposals_and_gocranes():
    labels = {
        keys.CRANE_AWARENESS: "true",
        keys.NODE_NUMA_ALIGNMENT: "Restricted",
        keys.NODE_NUMA_POLICY: "BestEffort",
    }
    assert node_labels.node_labels(labels, {}).policies.numa is NUMAPolicy.BEST_EFFORT
    del labels[keys.NODE_NUMA_POLICY]
    assert node_labels.node_labels(labels, {}).policies.numa is NUMAPolicy.RESTRICTED


def test_the_right_spelling_of_the_bind_policy_wins_over_the_misspelt_one():
    labels = {keys.NODE_BIND_POLICY_PROPOSED: "FullPCPUsOnly", keys.NODE_BIND_POLICY: "SpreadByPCPUs"}
    assert node_labels.node_labels(labels, {}).policies.bind is SPREAD
    fault = node_labels.node_labels({keys.NODE_BIND_POLICY_PROPOSED: "Full"}, {}).faults[0]
    assert fault.field == "metadata.labels[node.koordator.sh/cpubind-policy]"


def test_names_within_annotations_are_read_in_any_case_as_gos_json_does():
    found = annotated(keys.RESERVATION, {"ReservedCpus": "0-1", "applypolicy": "ReservedCPUsOnly"})
    assert found.reservation == Reservation(CPUSet([0, 1]), cpus_only=True)
    system = annotated(keys.SYSTEM_QOS, {"CPUSet": "6", "cpuSetExclusive": False})
    assert (system.system, system.system_exclusive) == (CPUSet([6]), False)
    kubelet = node_labels.published_kubelet(published('{"Policy":"static","reservedCpus":"0"}'))
    assert (kubelet.policy, kubelet.reserved) == ("static", CPUSet([0]))


@pytest.mark.parametrize("text", ['{"cpu":1.123456789}', '{"cpu":999.9999999}', '{"cpu":1.0000001}'])
def test_an_amplification_of_many_digits_can_be_published_and_read_back(text):
    found = node_labels.pool_options(annotated(keys.AMPLIFICATION, text), KUBELET, PoolOptions(), TWO_NODES)
    machine = parse_spec("socket:1 core:4 smt:2")
    state = node.new(machine, node.NodeConfig("pools", pools=found))
    assert ledger_annotation.load(ledger_annotation.dump(state), machine).config.pools == found
    assert abs(found.amplification - Fraction(json.loads(text)["cpu"])) < Fraction(1, 1_000_000)


def test_the_annotations_of_a_node():
    reserved = {"resources": {"cpu": "1500m"}, "reservedCPUs": "0-1", "applyPolicy": "ReservedCPUsOnly"}
    found = annotated(keys.RESERVATION, reserved).reservation
    assert found == Reservation(CPUSet([0, 1]), 1500, cpus_only=True)
    found = annotated(keys.RESERVATION, {"resources": {"cpu": 2, "memory": "1Gi"}}).reservation
    assert found == Reservation(milli=2000, memory=2**30)
    system = annotated(keys.SYSTEM_QOS, {"cpuset": "6-7"})
    assert (system.system, system.system_exclusive) == (CPUSet([6, 7]), True)
    assert not annotated(keys.SYSTEM_QOS, {"cpuset": "6", "cpusetExclusive": False}).system_exclusive
    found = annotated(keys.AMPLIFICATION, '{"cpu":1.50,"memory":1,"x":1.1}').amplification
    assert found == {"cpu": Fraction(3, 2), "x": Fraction(11, 10)}


def test_cpus_are_withheld_by_name_or_picked_as_by_the_kubelet():
    assert Reservation(CPUSet([3, 99])).withheld(TWO_NODES) == 0b1000
    assert Reservation(milli=2500).withheld(TWO_NODES) == 0b111
    assert Reservation(milli=99_000).withheld(TWO_NODES) == TWO_NODES.all


@pytest.mark.parametrize(
    ("labels", "annotations", "field", "why"),
    [
        (
            {keys.NODE_BIND_POLICY: "FullPCPUs"},
            {},
            keys.NODE_BIND_POLICY,
            "use None, FullPCPUsOnly or Spread",
        ),
        ({keys.NODE_NUMA_STRATEGY: "Most"}, {}, keys.NODE_NUMA_STRATEGY, "use MostAllocated, LeastAllocated"),
        ({keys.NODE_NUMA_POLICY: "Strict"}, {}, keys.NODE_NUMA_POLICY, "SingleNUMANode or None"),
        ({keys.CRANE_AWARENESS: "ja"}, {}, keys.CRANE_AWARENESS, "use true or false"),
        ({}, {keys.RESERVATION: "{"}, keys.RESERVATION, "not a JSON object"),
        (
            {},
            {keys.RESERVATION: '{"reservedCPUs":"a"}'},
            f"{keys.RESERVATION}].reservedCPUs",
            "not a CPU list",
        ),
        ({}, {keys.RESERVATION: '{"resources":{"cpu":"x"}}'}, "resources.cpu", "quantities must"),
        ({}, {keys.RESERVATION: '{"resources":{"cpu":"-1"}}'}, "resources.cpu", "greater than or equal to 0"),
        ({}, {keys.RESERVATION: '{"resources":{"memory":"1GB"}}'}, "resources.memory", "quantities must"),
        ({}, {keys.RESERVATION: '{"applyPolicy":"All"}'}, "applyPolicy", "use Default or ReservedCPUsOnly"),
        ({}, {keys.SYSTEM_QOS: '{"cpusetExclusive":"x"}'}, "cpusetExclusive", "use true or false"),
        ({}, {keys.AMPLIFICATION: '{"cpu":"1.5"}'}, f"{keys.AMPLIFICATION}].cpu", "must be a number"),
        ({}, {keys.AMPLIFICATION: '{"cpu":0}'}, f"{keys.AMPLIFICATION}].cpu", "above 0"),
    ],
)
def test_a_broken_one_is_a_fault_and_spoils_nothing_else(labels, annotations, field, why):
    good = {keys.NODE_BIND_POLICY: "SpreadByPCPUs", keys.NODE_NUMA_STRATEGY: "MostAllocated"} | labels
    found = node_labels.node_labels(good, {keys.SYSTEM_QOS: '{"cpuset":"6"}'} | annotations)
    (fault,) = found.faults
    assert field in fault.field
    assert why in fault.why
    kept = [found.policies.bind is SPREAD, found.policies.strategy is not None, found.system == CPUSet([6])]
    assert kept.count(True) >= 2


def published(annotation=None, policies=(), attributes=(), key=keys.CPU_MANAGER_POLICY):
    annotations = {} if annotation is None else {key: annotation}
    return NodeResourceTopology(
        ObjectMeta(annotations=annotations),
        topology_policies=policies,
        attributes=tuple(Attribute(*one) for one in attributes),
    )


def test_a_kubelets_settings_are_read_and_written_as_koordlet_does():
    text = '{"policy":"static","options":{"full-pcpus-only":"true"},"reservedCPUs":"0-1"}'
    found = node_labels.published_kubelet(published(text))
    assert found == KubeletSettings("static", {"full-pcpus-only": "true"}, CPUSet([0, 1]))
    assert node_labels.dump_kubelet(found) == text
    assert node_labels.dump_kubelet(KubeletSettings()) == '{"policy":"none"}'
    assert node_labels.published_kubelet(published()) == KubeletSettings()


@pytest.mark.parametrize("key", keys.CPU_MANAGER_POLICY_PROPOSED)
def test_a_kubelets_settings_are_read_under_the_proposals_misspellings_too(key):
    text = '{"policy":"static","options":{"full-pcpus-only":"true"}}'
    assert node_labels.published_kubelet(published(text, key=key)) == KubeletSettings(
        "static", {"full-pcpus-only": "true"}
    )
    with pytest.raises(TranslationError, match=f"{key}].policy: invalid value 'x': use none or static"):
        node_labels.published_kubelet(published('{"policy":"x"}', key=key))


@pytest.mark.parametrize(
    ("policies", "attributes", "expected"),
    [
        (("SingleNUMANodePodLevel",), (), ("single-numa-node", "pod")),
        (("SingleNUMANodeContainerLevel",), (), ("single-numa-node", "container")),
        (("RestrictedPodLevel",), (), ("restricted", "pod")),
        (("BestEffortContainerLevel",), (), ("best-effort", "container")),
        (("BestEffort",), (), ("best-effort", "container")),
        (("None",), (), ("none", "container")),
        (("Unheard",), (), ("none", "container")),
        (
            ("None",),
            (("topologyManagerPolicy", "restricted"), ("topologyManagerScope", "pod")),
            ("restricted", "pod"),
        ),
        (("RestrictedContainerLevel",), (("topologyManagerScope", "pod"),), ("restricted", "pod")),
        (("RestrictedPodLevel",), (("topologyManagerPolicy", "best-effort"),), ("best-effort", "pod")),
        (("RestrictedPodLevel",), (("topologyManagerScope", "node"),), ("restricted", "pod")),
        ((), (("topologyManagerPolicy", "loose"),), ("none", "container")),
    ],
)
def test_all_topology_policies_of_kubelets_are_understood(policies, attributes, expected):
    found = node_labels.published_kubelet(published(policies=policies, attributes=attributes))
    assert (found.topology_policy, found.topology_scope) == expected


def test_what_a_kubelet_says_counts_only_under_its_static_policy():
    both = {"full-pcpus-only": "true", "distribute-cpus-across-numa": "true"}
    static = KubeletSettings("static", both, topology_policy="restricted").policies
    assert static == NodePolicies(FULL, NUMAStrategy.DISTRIBUTE_EVENLY, NUMAPolicy.RESTRICTED)
    assert KubeletSettings("none", both).policies == NodePolicies()
    assert KubeletSettings("static", {"full-pcpus-only": "false"}).policies == NodePolicies()


@pytest.mark.parametrize(
    ("text", "field", "why"),
    [
        ('{"policy":"dynamic"}', "policy", "use none or static"),
        ('{"options":{"full-pcpus-only":"ja"}}', "options.full-pcpus-only", "use true or false"),
        ('{"options":{"x":1}}', "options.x", "must be a string"),
        ('{"options":[]}', "options", "not a JSON object"),
        ('{"reservedCPUs":"1-0"}', "reservedCPUs", "not a CPU list"),
    ],
)
def test_broken_settings_of_a_kubelet_are_named(text, field, why):
    with pytest.raises(TranslationError) as caught:
        node_labels.published_kubelet(published(text))
    assert caught.value.field.endswith(f"].{field}")
    assert why in caught.value.why


def test_labels_come_before_the_kubelet_and_it_before_the_profile():
    kubelet = KubeletSettings("static", {"full-pcpus-only": "true", "distribute-cpus-across-numa": "true"})
    profile = PoolOptions(
        numa=NUMAPolicy.BEST_EFFORT, strategy=NUMAStrategy.MOST_ALLOCATED, withheld=CPUSet([15])
    )
    labels = {keys.NODE_BIND_POLICY: "SpreadByPCPUs"}
    annotations = {keys.RESERVATION: '{"reservedCPUs":"0-1"}', keys.SYSTEM_QOS: '{"cpuset":"2-3"}'}
    settings = node_labels.node_labels(labels, annotations)
    found = node_labels.pool_options(settings, kubelet, profile, TWO_NODES)
    assert (found.node_bind, found.numa, found.strategy) == (
        SPREAD,
        NUMAPolicy.BEST_EFFORT,
        "DistributeEvenly",
    )
    assert (found.withheld, found.system, found.as_proposed) == (CPUSet([0, 1, 15]), CPUSet([2, 3]), False)
    plain = node_labels.pool_options(node_labels.NodeLabels(), KubeletSettings(), profile, TWO_NODES)
    assert plain == profile


def test_bound_cpus_count_for_more_on_a_node_that_is_amplified():
    ratio = Fraction(3, 2)
    assert [config.amplify(n, ratio) for n in (0, 1, 1000)] == [0, 2, 1500]
    assert config.amplify(1000, Fraction(1, 2)) == 1000
    assert config.requested(5000, 4, ratio) == 7000
    assert config.requested(3000, 4, ratio) == 3000
    assert config.fits(12_000, 9000, 2000, ratio, binds=True)
    assert not config.fits(12_000, 9000, 2001, ratio, binds=True)
    assert config.fits(12_000, 9000, 3000, ratio, binds=False)


def test_nulls_among_amounts_say_nothing():
    reserved, ratios = '{"resources":{"cpu":null,"memory":"1Gi"}}', '{"cpu":1.5,"memory":null}'
    read = node_labels.node_labels({}, {keys.RESERVATION: reserved, keys.AMPLIFICATION: ratios})
    assert (read.faults, read.reservation) == ((), Reservation(memory=1 << 30))
    assert read.amplification == {"cpu": Fraction(3, 2)}
