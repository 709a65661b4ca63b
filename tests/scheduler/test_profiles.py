"""The scheduler's configuration file: profiles, plugins, arguments, and one clear line for each mistake."""

import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
import yaml

from corelane.app.scheduler import SchedulerOptions, lease_settings, with_file
from corelane.scheduler import profiles
from corelane.scheduler.framework import configuration
from corelane.scheduler.framework import profile as registry
from corelane.scheduler.framework.configuration import Configuration, ConfigurationError
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.plugins import default
from corelane.settings import SettingsError
from corelane.workload import BindPolicy, NUMAPolicy, NUMAStrategy, SchedulerDefaults
from support import objects
from support.core_lab import CoreLab, placed
from support.pods import container, pod

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
EXAMPLE = Path(__file__).parents[2] / "examples" / "scheduler-plugin"


def parsed(text: str) -> Configuration:
    return configuration.parse(HEAD + text, "s.yaml", profiles.offer({}))


def only(text: str) -> Profile:
    (found,) = parsed(text).profiles
    return found


def names(plugins: object) -> list[str]:
    return [plugin.name for plugin in plugins]  # type: ignore[attr-defined]


def test_without_profiles_the_default_one_is_there() -> None:
    found, usual = only(""), default.profile()
    assert found.name == usual.name
    assert names(found.plugins) == names(usual.plugins)
    assert names(found.filters) == names(usual.filters)
    assert [(one.name, weight) for one, weight in found.scores] == [
        (one.name, weight) for one, weight in usual.scores
    ]
    assert found.queue_sort.name == "PrioritySort"


def test_every_default_plugin_has_a_factory() -> None:
    assert names(default.plugins()) == list(default.ORDER)


def test_a_plugin_is_disabled_at_one_extension_point_or_at_all() -> None:
    profile = only(
        "profiles:\n- plugins:\n    score:\n      disabled: [{name: ImageLocality}]\n"
        "    multiPoint:\n      disabled: [{name: NodePorts}]\n"
    )
    assert "ImageLocality" not in names(one for one, _ in profile.scores)
    assert "NodePorts" not in names(profile.filters)
    assert "NodePorts" not in names(profile.plugins)


def test_a_star_disables_all_of_a_point_and_enabled_ones_have_their_weights() -> None:
    profile = only(
        "profiles:\n- plugins:\n    score:\n      disabled: [{name: '*'}]\n"
        "      enabled: [{name: NUMALocality, weight: 7}, {name: NodeResourcesFit}]\n"
    )
    assert [(one.name, weight) for one, weight in profile.scores] == [
        ("NUMALocality", 7.0),
        ("NodeResourcesFit", 1.0),
    ]
    assert "NodeResourcesFit" in names(profile.filters)


def test_several_profiles_have_names_and_arguments_of_their_own() -> None:
    packing, spreading = parsed(
        "profiles:\n- schedulerName: pack\n  pluginConfig:\n"
        "  - name: NodeResourcesFit\n    args: {scoringStrategy: {type: MostAllocated}}\n"
        "  - name: CPUPlacement\n    args: {bindPolicy: SpreadByPCPUs, numaTopologyPolicy: SingleNUMANode}\n"
        "- schedulerName: spread\n"
    ).profiles
    assert (packing.name, spreading.name) == ("pack", "spread")
    assert next(one for one in packing.plugins if one.name == "NodeResourcesFit").strategy == "MostAllocated"  # type: ignore[attr-defined]
    assert packing.defaults.bind is BindPolicy.SPREAD_BY_PCPUS
    assert packing.defaults.numa is NUMAPolicy.SINGLE_NUMA_NODE
    assert spreading.defaults.numa is None


def test_back_off_and_leader_election_are_read_and_parallelism_accepted() -> None:
    found = parsed(
        "podInitialBackoffSeconds: 2\npodMaxBackoffSeconds: 20\nparallelism: 16\n"
        "percentageOfNodesToScore: 10\nleaderElection: {leaderElect: true, leaseDuration: 1m30s}\n"
    )
    assert (found.initial_backoff, found.max_backoff) == (2, 20)
    assert found.leader_election.leader_elect is True
    assert found.leader_election.lease_duration is not None
    assert configuration.duration(found.leader_election.lease_duration, "s.yaml", "x") == 90


_ENABLED = "profiles:\n- plugins: {score: {enabled: [%s]}}\n"
_ARGS = "profiles:\n- pluginConfig: [{name: %s}]\n"


_SKEW = "maxSkew: 1, topologyKey: z"
_HARD = f"{_SKEW}, whenUnsatisfiable: DoNotSchedule"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("profile: []\n", ["profile"]),
        ("profiles: 3\n", ["profiles", "3"]),
        ("profiles:\n- schedulerName: [a]\n", ["profiles[0].schedulerName", "['a']"]),
        ("profiles:\n- schedulerName: a\n- schedulerName: a\n", ["profiles[1].schedulerName", "'a'"]),
        ("profiles:\n- plugins: {filtre: {}}\n", ["profiles[0].plugins", "'filtre'", "preEnqueue"]),
        (
            "profiles:\n- plugins: {score: {enabled: [{name: Nome}]}}\n",
            ["plugins.score.enabled[0].name", "'Nome'", "NUMALocality"],
        ),
        (
            "profiles:\n- plugins: {score: {enabled: [{name: NodePorts}]}}\n",
            ["score.enabled[0].name", "NodePorts", "nothing to do"],
        ),
        (_ENABLED % "{name: numalocality}", ["enabled[0].name", "no such plugin; use NUMALocality"]),
        (_ENABLED % "{name: SnugFit}, {name: SnugFit}", ["enabled[1].name", "'SnugFit'", "once"]),
        (
            _ARGS % "NodeResourcesFit, args: {scoringStrategi: {}}",
            ["unknown field", "use scoringStrategy"],
        ),
        (_ARGS % "VolumeBinding, args: {bindTimeoutSeconds: 10m}", ["bindTimeoutSeconds", "'10m'", "number"]),
        (_ARGS % "VolumeBinding, args: {bindTimeoutSeconds: -5}", ["bindTimeoutSeconds", "-5", "0 or more"]),
        (_ARGS % "InterPodAffinity, args: {hardPodAffinityWeight: 101}", ["101", "use 0 to 100"]),
        (_ARGS % "InterPodAffinity, args: {hardPodAffinityWeight: x}", ["'x' is invalid", "an integer"]),
        (
            _ARGS % "DefaultPreemption, args: {minCandidateNodesAbsolute: m}",
            ["'m' is invalid", "an integer"],
        ),
        (
            _ARGS % "PodTopologySpread, args: {defaultingType: X}",
            ["'X' is invalid", "use System or List"],
        ),
        (
            _ARGS % "PodTopologySpread, args: {defaultingType: List, defaultConstraints: [{maxSkew: 0}]}",
            ["defaultConstraints[0].maxSkew 0: use more than 0"],
        ),
        (
            _ARGS % "PodTopologySpread, args: {defaultingType: List, defaultConstraints: [{maxSkew: 1}]}",
            ["defaultConstraints[0].topologyKey missing"],
        ),
        *(
            (
                _ARGS
                % f"PodTopologySpread, args: {{defaultingType: List, defaultConstraints: [{{{fields}}}]}}",
                [f"defaultConstraints[0].{said}"],
            )
            for fields, said in (
                ("topologyKey: z, whenUnsatisfiable: DoNotSchedule", "maxSkew missing"),
                ("maxSkew: 1, topologyKey: z", "whenUnsatisfiable missing: add DoNotSchedule or"),
                (f"{_SKEW}, whenUnsatisfiable: Maybe", "whenUnsatisfiable 'Maybe': use DoNotSchedule or"),
                (f"{_HARD}, nodeAffinityPolicy: Honour", "nodeAffinityPolicy 'Honour': use Honor or Ignore"),
                (f"{_HARD}, nodeTaintsPolicy: Maybe", "nodeTaintsPolicy 'Maybe': use Honor or Ignore"),
                (f"{_HARD}, minDomains: 0", "minDomains 0: use more than 0"),
                (f"{_HARD}, labelSelector: {{}}", "labelSelector is set"),
                (
                    "maxSkew: 1, topologyKey: a b, whenUnsatisfiable: DoNotSchedule",
                    "topologyKey 'a b': use a node label's key",
                ),
            )
        ),
        (
            _ARGS % "DefaultPreemption, args: {minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0}",
            ["minCandidateNodesPercentage 0, minCandidateNodesAbsolute 0", "use 1 or more"],
        ),
        (_ARGS % "DefaultPreemption, args: {minCandidateNodesPercentage: 101}", ["101", "use 0 to 100"]),
        (_ARGS % "DefaultPreemption, args: {minCandidateNodesAbsolute: -1}", ["-1", "use 0 or more"]),
        *(
            (
                _ARGS
                % (
                    "NodeAffinity, args: {addedAffinity: {preferredDuringSchedulingIgnoredDuringExecution:"
                    f" [{{weight: {weight}, preference: {{}}}}]}}}}"
                ),
                [f"preferredDuringSchedulingIgnoredDuringExecution[0].weight {weight}: use 1 to 100"],
            )
            for weight in (-5, 101)
        ),
        *(
            (
                _ARGS % f"NodeNUMAResource, args: {{scoringStrategy: {{{fields}}}}}",
                ["NodeNUMAResource", f"scoringStrategy.{said}"],
            )
            for fields, said in (
                ("typ: MostAllocated", "typ: unknown field"),
                ("type: Most", "type 'Most' is unknown"),
                ("resources: cpu", "resources: 'cpu' is invalid: use a list"),
                ("resources: [cpu]", "resources[0]: 'cpu' is invalid: use a mapping"),
                ("resources: [{weight: 1}]", "resources[0]: name is missing"),
                (
                    "resources: [{name: cpu, weight: -2}]",
                    "resources[0].weight: -2 is invalid: use an integer",
                ),
                (
                    "resources: [{name: cpu, weight: 1.5}]",
                    "resources[0].weight: 1.5 is invalid: use an integer",
                ),
                (
                    "resources: [{name: cpu}, {name: cpu}]",
                    "resources: 'cpu' is given twice: name a resource once",
                ),
                ("resources: [{name: cpu, wight: 2}]", "resources[0].wight: unknown field"),
            )
        ),
        (
            _ARGS % "NodeNUMAResource, args: {preemptionMode: 1}",
            ["args.preemptionMode: unknown field, value 1: use scoringStrategy, default"],
        ),
        (
            _ARGS % "NodeNUMAResource, args: {numaScoringStrateg: {}}",
            ["numaScoringStrateg: unknown field, value {}: use", "and numaScoringStrategy"],
        ),
        (
            _ARGS % "NodeNUMAResource, args: {defaultCPUBindPolicy: Spread}",
            ["defaultCPUBindPolicy 'Spread': use one of FullPCPUs, SpreadByPCPUs"],
        ),
        (
            _ARGS % "NodeNUMAResource, args: {numaScoringStrategy: {type: BalancedAllocation}}",
            ["numaScoringStrategy.type 'BalancedAllocation' is unknown: use one of LeastAllocated, Most"],
        ),
        (
            _ARGS % "NodeNUMAResource, args: {numaScoringStrategy: {resources: [{name: cpu}]}}",
            ["numaScoringStrategy.resources", "the weights of scoringStrategy.resources count"],
        ),
        (
            _ARGS % "NodeResourceTopologyMatch, args: {scoringStrategy: {type: Most}}",
            ["NodeResourceTopologyMatch", "scoringStrategy.type 'Most' is unknown"],
        ),
        (
            _ARGS % "NodeResourceTopologyMatch, args: {discardReservedNodes: true}",
            ["discardReservedNodes true is not supported: use false"],
        ),
        (
            _ARGS % "NodeResourceTopologyMatch, args: {cacheResyncPeriodSeconds: 0}",
            ["cacheResyncPeriodSeconds 0: pods that were placed are always counted", "use 1 or more"],
        ),
        (
            _ARGS % "NodeResourceTopologyMatch, args: {cache: {resyncMethod: All}}",
            ["cache.resyncMethod: 'All' is invalid: use Autodetect"],
        ),
        (
            _ARGS % "NodeResourceTopologyMatch, args: {cache: {resyncMethd: All}}",
            ["cache.resyncMethd: unknown field, value 'All': use", "resyncMethod"],
        ),
        ("clientConnection: {burst: -1}\n", ["clientConnection.burst: -1 is invalid: use 0 or more"]),
        (
            _ARGS % "NodeAffinity, args: {addedAffinity: 3}",
            ["args.addedAffinity: 3 is invalid: use a mapping"],
        ),
        (
            _ARGS
            % (
                "NodeAffinity, args: {addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution:"
                " {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Inn}]}]}}}"
            ),
            ["addedAffinity", "'Inn'", "DoesNotExist"],
        ),
        (
            _ARGS
            % (
                "NodeAffinity, args: {addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution:"
                " {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Gt, values: [x]}]}]}}}"
            ),
            ["addedAffinity", "a Gt [x] can match no node"],
        ),
        (
            _ARGS % "NodeAffinity, args: {addedAffinity: {required: {}}}",
            ["addedAffinity.required: unknown field, value {}", "requiredDuring"],
        ),
        *(
            (
                _ARGS % f"NodeResourcesFit, args: {{scoringStrategy: {{resources: {resources}}}}}",
                ["args of NodeResourcesFit", f"scoringStrategy.resources{said}"],
            )
            for resources, said in (
                ("[{name: cpu}]", " cpu: 1: only cpu and memory"),
                ("[{name: cpu, weight: 2}, {name: memory}]", " cpu: 2, memory: 1: only cpu and memory"),
            )
        ),
        (_ARGS % "NodeResourcesFit, args: {kind: FooArgs}", ["args.kind: 'FooArgs'", "NodeResourcesFitArgs"]),
        (
            _ARGS
            % ("PodTopologySpread, args: {defaultingType: List, defaultConstraints: [{topologKey: z}]}"),
            ["defaultConstraints[0].topologKey: unknown field, value 'z': use maxSkew, topologyKey"],
        ),
        (
            _ARGS
            % (
                "PodTopologySpread, args: {defaultingType: List, defaultConstraints: ["
                "{maxSkew: 1, topologyKey: z, whenUnsatisfiable: DoNotSchedule},"
                " {maxSkew: 2, topologyKey: z, whenUnsatisfiable: DoNotSchedule}]}"
            ),
            ["defaultConstraints[1].topologyKey z: given twice with DoNotSchedule"],
        ),
        (
            "leaderElection: {resourceLock: endpoints}\n",
            ["leaderElection.resourceLock", "'endpoints'", "leases"],
        ),
        ("percentageOfNodesToScore: 200\n", ["percentageOfNodesToScore: 200", "0 to 100"]),
        ("profiles: [{percentageOfNodesToScore: -4}]\n", ["profiles[0].percentageOfNodesToScore: -4"]),
        ("parallelism: 0\n", ["parallelism: 0 is invalid: use more than 0"]),
        ("clientConnection: {qps: fast}\n", ["clientConnection.qps: 'fast' is invalid"]),
        ("profiles:\n- plugins: {queueSort: {disabled: [{name: '*'}]}}\n", ["queueSort", "PrioritySort"]),
        ("profiles:\n- pluginConfig: [{name: Nome}]\n", ["pluginConfig[0].name", "'Nome'"]),
        (
            "profiles:\n- pluginConfig: [{name: CPUPlacement, args: {bindPolicy: Full}}]\n",
            ["CPUPlacement", "'Full'", "FullPCPUs"],
        ),
        (
            "profiles:\n- pluginConfig: [{name: CPUPlacement, args: {bindPolicy: ConstrainedBurst}}]\n",
            ["bindPolicy 'ConstrainedBurst': use one of FullPCPUs, SpreadByPCPUs"],
        ),
        (
            "profiles:\n- pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: X}}}]\n",
            ["NodeResourcesFit", "'X'", "MostAllocated"],
        ),
        (
            "profiles:\n- pluginConfig: [{name: SnugFit, args: {a: 1}}]\n",
            ["profiles[0].pluginConfig[0].args.a: unknown field, value 1: remove it"],
        ),
        (
            "profiles:\n- plugins: {multiPoint: {disabled: [{name: CPUPlacement}]}}\n",
            ["CPUPlacement disabled", "given twice"],
        ),
        ("extenders: [{urlPrefix: x}]\n", ["extenders", "remove"]),
        ("podInitialBackoffSeconds: 0\n", ["podInitialBackoffSeconds", "0"]),
        ("podMaxBackoffSeconds: 0.5\n", ["podMaxBackoffSeconds", "0.5"]),
    ],
)
def test_a_mistake_is_named_with_file_field_and_value(text: str, said: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parsed(text)
    message = str(caught.value)
    assert message.startswith("s.yaml: ")
    assert all(word in message for word in said), message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            _ENABLED % "{name: NUMALocality, weight: heavy}",
            ("profiles[0].plugins.score.enabled[0].weight: 'heavy' is invalid: use an integer or a number"),
        ),
        (
            _ENABLED % "{name: NUMALocality, weight: .nan}",
            ("profiles[0].plugins.score.enabled[0].weight: nan is invalid: use a finite number"),
        ),
        (
            _ENABLED % "{name: NUMALocality, weight: -3}",
            (
                "profiles[0].plugins.score.enabled[0].weight: -3 is invalid: use 1 or more,"
                " or name it in disabled"
            ),
        ),
        (
            _ENABLED % "{name: NUMALocality, wieght: 3}",
            ("profiles[0].plugins.score.enabled[0].wieght: unknown field, value 3: use name and weight"),
        ),
        (
            _ENABLED % "{weight: 3}",
            "profiles[0].plugins.score.enabled[0]: name is missing",
        ),
        (
            "leaderElection: {lock: a}\n",
            (
                "leaderElection.lock: unknown field, value 'a': use leaderElect, leaseDuration,"
                " renewDeadline, retryPeriod, resourceLock, resourceName and resourceNamespace"
            ),
        ),
        (
            "profiles: [{plugins: {1: {}}}]\n",
            "profiles[0].plugins: key: 1 is invalid: use a string",
        ),
        (
            "leaderElection: {leaderElect: 1}\n",
            "leaderElection.leaderElect: 1 is invalid: use true or false",
        ),
        (
            "podMaxBackoffSeconds: .inf\n",
            "podMaxBackoffSeconds: inf is invalid: use a finite number",
        ),
    ],
)
def test_a_field_of_another_type_is_named_with_its_value_and_the_remedy(text: str, line: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parsed(text)
    assert str(caught.value) == f"s.yaml: {line}"


@pytest.mark.parametrize(
    "text",
    [
        "profiles:\n",
        "profiles: [null]\n",
        "profiles: [{schedulerName: null, plugins: null, pluginConfig: null}]\n",
        "profiles: [{plugins: {filter: null, score: {enabled: null, disabled: null}}}]\n",
        "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: null}]}]\n",
        "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: null}}]}]\n",
        "leaderElection: null\n",
        "leaderElection: {leaderElect: null}\n",
        "extenders: null\npodInitialBackoffSeconds: null\nparallelism: null\nclientConnection: null\n",
    ],
)
def test_null_is_the_default_as_in_kube_scheduler(text: str) -> None:
    """Each of these files was accepted by kube-scheduler 1.36.2, with the values of a file without them."""
    found, usual = parsed(text), parsed("")
    assert [one.name for one in found.profiles] == [one.name for one in usual.profiles]
    assert [one.scores[0][1] for one in found.profiles] == [one.scores[0][1] for one in usual.profiles]
    assert found.leader_election == usual.leader_election
    assert (found.initial_backoff, found.max_backoff) == (1, 10)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("parallelism: 4\nparallelism: 5\n", "parallelism: is given twice (mapping from line 1)"),
        (
            "profiles:\n- schedulerName: a\n  plugins: {}\n  schedulerName: b\n",
            "schedulerName: is given twice (mapping from line 4)",
        ),
        ("profiles: [\n", "line 4, column 1"),
        ("a: b: c\n", "not YAML: mapping values are not allowed here"),
        ("podMaxBackoffSeconds: 2026-13-45\n", "month must be in 1..12"),
        ("profiles: &a [*a]\n", "not YAML: its aliases expand to more than 1,000,000 values"),
        ("profiles: " + 2000 * "[" + 2000 * "]", "not YAML: nested too deeply"),
        ("profiles: !!python/object:os.system {}\n", "not YAML: could not determine a constructor"),
    ],
)
def test_yaml_that_cannot_be_read_is_named_with_its_line(text: str, line: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parsed(text)
    message = str(caught.value)
    assert message.startswith("s.yaml: ")
    assert line in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "what"),
    [("", "is empty"), ("# nothing\n---\n", "is empty"), ("- 1\n", "is not a mapping")],
)
def test_a_file_without_fields_is_refused_with_its_first_lines(text: str, what: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        configuration.parse(text, "s.yaml", profiles.offer({}))
    assert str(caught.value) == (
        f's.yaml: the file {what}: begin it with "apiVersion: kubescheduler.config.k8s.io/v1"'
        ' and "kind: KubeSchedulerConfiguration"'
    )


WEIGHT = "profiles[0].plugins.score.enabled[0].weight"


def test_the_order_at_a_point_is_upstreams() -> None:
    """Those of multiPoint that the point names, too, the others of multiPoint, the point's own."""
    profile = only(
        "profiles:\n- plugins:\n"
        "    multiPoint: {disabled: [{name: NodePorts}, {name: NodeName}]}\n"
        "    filter: {enabled: [{name: NodePorts}, {name: CPUPlacement}, {name: NodeAffinity}]}\n"
    )
    found, usual = names(profile.filters), names(default.profile().filters)
    others = [one for one in usual if one not in {"NodePorts", "NodeName", "CPUPlacement", "NodeAffinity"}]
    assert found == ["CPUPlacement", "NodeAffinity", *others, "NodePorts"]


_WITHOUT_BINDER = """
profiles:
- plugins:
    multiPoint:
      disabled: [{name: '*'}]
      enabled: [{name: PrioritySort}, {name: PodValidity}, {name: CPUPlacement}, {name: NodeResourcesFit}]
"""


def weighted(weight: str) -> str:
    return f"profiles: [{{plugins: {{score: {{enabled: [{{name: NUMALocality, weight: {weight}}}]}}}}}}]\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("profiles: [null, {schedulerName: b}]\n", "profiles[0]: None is invalid"),
        ("leaderElection: {leaseDuration: null}\n", "leaderElection.leaseDuration: null is invalid"),
        ("leaderElection: {renewDeadline: null}\n", "leaderElection.renewDeadline: null is invalid"),
        *(
            (weighted(weight), f"{WEIGHT}: {weight} is invalid")
            for weight in ("1.5", "1000000000000", "2147483648")
        ),
        (
            _WITHOUT_BINDER,
            "profiles[0].plugins.bind: [] is invalid: enable at least one, such as DefaultBinder",
        ),
    ],
)
def test_what_kube_scheduler_refuses_is_refused(text: str, problem: str) -> None:
    """kube-scheduler 1.36.2 refused files like each of these."""
    with pytest.raises(ConfigurationError) as error:
        parsed(text)
    assert str(error.value).startswith(f"s.yaml: {problem}")


@pytest.mark.parametrize("weight", ["2.0", "2147483647"])
def test_weights_that_kube_scheduler_accepts_are_accepted(weight: str) -> None:
    scores = {one.name: value for one, value in only(weighted(weight)).scores}
    assert scores["NUMALocality"] == float(weight)


def test_a_scheduler_name_with_a_space_is_accepted_as_in_kube_scheduler() -> None:
    assert only("profiles: [{schedulerName: a b}]\n").name == "a b"


@pytest.mark.parametrize("weight", ["", ", weight: 0"])
@pytest.mark.parametrize("point", ["score", "multiPoint"])
def test_a_plugin_enabled_without_a_weight_has_weight_one_as_upstream(point: str, weight: str) -> None:
    profile = only(f"profiles:\n- plugins: {{{point}: {{enabled: [{{name: NUMALocality{weight}}}]}}}}\n")
    weights = {one.name: weight for one, weight in profile.scores}
    assert weights["NUMALocality"] == 1
    assert weights["TaintToleration"] == 3, "plugins that the file does not name keep theirs"


@pytest.mark.parametrize("text", ["kind: Pod\napiVersion: v1\n", HEAD.replace("v1", "v9")])
def test_a_file_of_another_kind_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^s\.yaml: "):
        configuration.parse(text, "s.yaml", profiles.offer({}))


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The example package, as `pip install` leaves it: on the path, with its entry point."""
    info = tmp_path / "rack_spread-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rack-spread\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\nRackSpread = rack_spread:RackSpread\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLE / "src")
    assert metadata.version("rack-spread") == "0.1.0"
    yield
    sys.modules.pop("rack_spread", None)


@pytest.mark.usefixtures("installed")
def test_another_packages_plugin_is_enabled_by_its_entry_point() -> None:
    (profile,) = profiles.read(EXAMPLE / "scheduler.yaml").configuration().profiles
    assert "RackSpread" in names(profile.filters)
    assert {one.name: weight for one, weight in profile.scores}["RackSpread"] == 3


@pytest.mark.usefixtures("installed")
def test_another_packages_plugin_decides() -> None:
    configuration_ = profiles.read(EXAMPLE / "scheduler.yaml").configuration()
    racks = (("a", {}), ("b", {"example.com/rack": "r1"}), ("c", {"example.com/rack": "r2"}))
    nodes = (objects.node(name, labels=labels) for name, labels in racks)
    lab = CoreLab(*nodes, profiles=configuration_.profiles)
    assert lab.bound(*(pod(name, container("x", "cpu=1", "")) for name in ("p", "q"))) == ["b", "c"]


class _Odd:
    """What a package may offer by mistake."""

    def __init__(self, **attributes: object) -> None:
        vars(self).update(attributes)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: _Odd(name="Other"), "its attribute \"name\" is 'Other': use 'Mine'"),
        (lambda: None, 'its attribute "name" is None'),
        (lambda: _Odd(name="Mine", filter=lambda *_: None), 'it has filter, but no attribute "scope"'),
        (lambda: {}["x"], "KeyError: 'x'"),
        (sys, "is a module, and cannot be called"),
    ],
)
def test_another_packages_unusable_plugin_is_refused_with_what_it_lacks(made: object, said: str) -> None:
    text = HEAD + "profiles:\n- plugins: {multiPoint: {enabled: [{name: Mine}]}}\n"
    with pytest.raises(ConfigurationError, match="Mine") as caught:
        configuration.parse(text, "s.yaml", profiles.offer({"Mine": made}))  # type: ignore[dict-item]
    assert said in str(caught.value)


def test_each_profile_decides_about_its_own_pods() -> None:
    found = parsed(
        "profiles:\n- schedulerName: pack\n  pluginConfig:\n"
        "  - {name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated}}}\n"
        "  plugins: {score: {disabled: [{name: '*'}], enabled: [{name: NodeResourcesFit}]}}\n"
        "- schedulerName: spread\n"
        "  plugins: {score: {disabled: [{name: '*'}], enabled: [{name: NodeResourcesFit}]}}\n"
    )
    lab, schedulers = CoreLab("a", "b", profiles=found.profiles), ("pack", "pack", "spread", "other")
    for number, name in enumerate(schedulers):
        lab.add(pod(f"p{number}", container("x", "cpu=1", "")), scheduler_name=name)
    assert placed(lab.run()) == {"p0": "a", "p1": "a", "p2": "b"}


def test_the_shipped_file_is_valid(tmp_path: Path) -> None:
    manifest = Path(__file__).parents[2] / "deploy/scheduler/config.yaml"
    (text,) = yaml.safe_load(manifest.read_text())["data"].values()
    (tmp_path / "scheduler.yaml").write_text(text)
    file, options = with_file(SchedulerOptions(config=tmp_path / "scheduler.yaml"))
    assert file is not None
    assert [one.name for one in file.configuration().profiles] == ["corelane-scheduler"]
    assert lease_settings(options) is not None


def test_options_override_the_file_and_the_file_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text(
        HEAD
        + "leaderElection: {leaseDuration: 1m, renewDeadline: 40s, retryPeriod: 500ms, resourceName: other}\n"
        "percentageOfNodesToScore: 50"
    )
    file.write_text(file.read_text() + "\nclientConnection: {kubeconfig: /etc/kc}")
    given = Path("/given")
    assert with_file(SchedulerOptions(config=file, kubeconfig=given))[1].kubeconfig == given
    _, options = with_file(SchedulerOptions(config=file, renew_deadline=20))
    assert options.kubeconfig == Path("/etc/kc")
    lease = lease_settings(options)
    assert lease is not None
    assert (lease.name, lease.duration, lease.renew_deadline, lease.retry_period) == ("other", 60, 20, 0.5)
    file.write_text(HEAD + "leaderElection: {leaderElect: false}")
    assert lease_settings(with_file(SchedulerOptions(config=file))[1]) is None
    assert lease_settings(with_file(SchedulerOptions(config=file, leader_elect=True))[1]) is not None


@pytest.mark.parametrize("text", ["soon", "15"])
def test_an_invalid_duration_is_named(text: str, tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text(f"{HEAD}leaderElection: {{leaseDuration: {text}}}")
    with pytest.raises(SettingsError, match=r"leaderElection\.leaseDuration"):
        with_file(SchedulerOptions(config=file))


def test_a_missing_file_is_named() -> None:
    with pytest.raises(SettingsError, match=r"/missing: No such file or directory"):
        with_file(SchedulerOptions(config=Path("/missing")))


@pytest.mark.parametrize(
    ("text", "flags", "said"),
    [
        (
            "renewDeadline: 20s",
            {},
            "{file}: leaderElection.renewDeadline: renew deadline 20 s: must be shorter",
        ),
        (
            "leaseDuration: 5s",
            {},
            "{file}: leaderElection.leaseDuration: renew deadline 10 s: must be shorter",
        ),
        (
            "retryPeriod: 9s",
            {},
            "{file}: leaderElection.retryPeriod: retry period 9 s: must be above 0 and 1.2",
        ),
        ("renewDeadline: 2s", {}, "{file}: leaderElection.renewDeadline: retry period 2 s: must be above 0"),
        (
            "leaseDuration: 1500ms",
            {},
            "{file}: leaderElection.leaseDuration: lease duration 1.5 s: must be a",
        ),
        (
            "leaseDuration: 20s",
            {"renew_deadline": 30},
            "--leader-elect-renew-deadline: renew deadline 30 s: must be shorter",
        ),
    ],
)
def test_times_that_contradict_each_other_are_named(
    text: str, flags: dict[str, float], said: str, tmp_path: Path
) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text(f"{HEAD}leaderElection: {{{text}}}")
    _, options = with_file(SchedulerOptions(config=file, **flags))
    with pytest.raises(SettingsError) as error:
        lease_settings(options)
    assert str(error.value).startswith(said.format(file=file))
    file.write_text(f"{HEAD}leaderElection: {{{text}, leaderElect: false}}")
    _, options = with_file(SchedulerOptions(config=file, **flags))
    assert lease_settings(options) is None


def test_names_that_are_empty_are_the_default_ones(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text(f'{HEAD}leaderElection: {{resourceName: "", resourceNamespace: "", resourceLock: ""}}')
    lease = lease_settings(with_file(SchedulerOptions(config=file))[1])
    assert lease is not None
    assert (lease.name, lease.namespace) == ("corelane-scheduler", "kube-system")


def test_all_profiles_order_the_queue_alike() -> None:
    class Sorts:
        name = "ByName"

        def sort_key(self, pod: object) -> tuple[str]:
            return ("",)

    offer = profiles.offer({"ByName": Sorts})
    other = "{queueSort: {enabled: [{name: ByName}], disabled: [{name: PrioritySort}]}}"
    text = f"profiles: [{{schedulerName: a}}, {{schedulerName: b, plugins: {other}}}]"
    with pytest.raises(ConfigurationError) as error:
        configuration.parse(HEAD + text, "s.yaml", offer)
    problem = "profiles[1].plugins.queueSort: 'ByName' is invalid: use PrioritySort, as profiles[0]"
    assert str(error.value).startswith(f"s.yaml: {problem}")
    text = f"profiles: [{{schedulerName: a, plugins: {other}}}, {{schedulerName: b, plugins: {other}}}]"
    assert len(configuration.parse(HEAD + text, "s.yaml", offer).profiles) == 2


@pytest.mark.parametrize(
    ("text", "seconds"), [("15s", 15.0), ("1m30s", 90.0), ("15000000us", 15.0), (".5s", 0.5)]
)
def test_a_duration_is_read_as_go_reads_it(text: str, seconds: float) -> None:
    assert configuration.duration(text, "s.yaml", "x") == seconds


@pytest.mark.parametrize("text", ["", "15", "-15s", "15 s", "1d", "9999999999h"])
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match='use a duration such as "15s"'):
        configuration.duration(text, "s.yaml", "x")


def test_koordinators_arguments_are_the_profiles_defaults() -> None:
    numa = "numaScoringStrategy: {type: MostAllocated, resources: [{name: cpu}, {name: memory}]}"
    args = f"{{defaultCPUBindPolicy: SpreadByPCPUs, {numa}}}"
    (made,) = parsed(_ARGS % f"NodeNUMAResource, args: {args}").profiles
    defaults = SchedulerDefaults(BindPolicy.SPREAD_BY_PCPUS, strategy=NUMAStrategy.MOST_ALLOCATED)
    assert made.defaults == defaults


def test_two_plugins_may_say_the_same_default_but_no_other() -> None:
    both = "profiles:\n- pluginConfig:\n  - {name: CPUPlacement, args: {bindPolicy: FullPCPUs}}\n"
    both += "  - {name: NodeNUMAResource, args: {defaultCPUBindPolicy: %s}}\n"
    assert parsed(both % "FullPCPUs").profiles[0].defaults.bind is BindPolicy.FULL_PCPUS
    with pytest.raises(ConfigurationError, match="NodeNUMAResource: SpreadByPCPUs' is invalid: CPUPlacement"):
        parsed(both % "SpreadByPCPUs")
