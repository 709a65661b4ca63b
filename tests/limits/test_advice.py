"""Advice from measured facts: what is fitted, predicted, refused, left alone and recommended."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.kernel.cpu_time.counters import CPULoad, Quota, Rates, Unusable
from corelane.kernel.cpu_time.threads import Losses
from corelane.limits.advice import changes, effects, judgement, options
from corelane.limits.advice.changes import RiskLevel
from corelane.limits.advice.effects import LimitChange, LoadShape
from corelane.limits.advice.inference import Effort
from corelane.limits.advice.judgement import Answer
from corelane.limits.advice.options import OptionKind
from corelane.limits.advice.subjects import ClusterSnapshot, NodeOccupancy, NodePod, Scaler, Subject
from corelane.limits.lint import manifests
from corelane.limits.lint.located import located
from corelane.limits.lint.policy import Policy
from corelane.limits.lint.thread_settings import ThreadSetting
from corelane.limits.measure import CostLevel, Latency, Measurement, RequestLog
from corelane.limits.model.bandwidth import CFSLimit
from corelane.limits.model.clock import MS
from corelane.limits.model.scenario import Scenario, ScenarioContainer, ScenarioPod, SimulatedMachine, run
from corelane.limits.model.workloads import Bursts, Duration, Spin, Workload
from corelane.workload.request import QOSClass

GI = 1 << 30
WEB = Subject("Deployment", "shop", "web", "app", request=200, limit=200, memory_request=GI, memory_limit=GI)
BUSY = Rates(
    30.0, used=200, throttled=3800, periods=300, throttled_periods=300, quota=Quota(20_000), stalled=900
)
"""Four threads that never stop, at 200m."""


@pytest.fixture(autouse=True)
def _little_effort(monkeypatch):
    monkeypatch.setattr(judgement, "QUICK", Effort(32, 8, 8, 1))


def simulated(workload: Workload, cpus: int, quota_ms: float, burst_ms: float = 0, seconds: float = 30):
    """What a kernel would count of a workload, and the result as a whole."""
    limit = CFSLimit(int(quota_ms * MS), burst_ns=int(burst_ms * MS)) if quota_ms else None
    pod = ScenarioPod("p", (ScenarioContainer("c", (workload,), 100, limit),))
    result = run(Scenario("t", "", SimulatedMachine(cpus), (pod,), seconds=seconds), 7).of("p/c")
    stat = result.stat
    rates = Rates(
        seconds,
        used=stat.usage_ns / MS / seconds,
        throttled=stat.throttled_ns / MS / seconds,
        periods=stat.nr_periods,
        throttled_periods=stat.nr_throttled,
        quota=Quota(int(quota_ms * 1000) or None, burst_us=int(burst_ms * 1000)),
    )
    return rates, result


def bursts(work_ms: float, threads: int = 1, every_ms: float = 1037) -> Bursts:
    return Bursts(Duration(int(work_ms * MS / threads)), every_ns=int(every_ms * MS), threads=threads)


def kinds(found: judgement.Advice) -> dict[OptionKind, options.Option]:
    return {one.kind: one for one in found.options}


@pytest.mark.parametrize(("threads", "quota"), [(1, 20), (2, 50), (4, 150)])
def test_busy_threads_are_recognised_and_another_limit_does_what_the_model_says(threads, quota):
    rates, _ = simulated(Spin(threads), threads, quota)
    found = judgement.fit_model(Measurement(rates), rates)
    assert found.shape is LoadShape.BUSY
    assert found.cpus == pytest.approx(threads, rel=0.02)
    wider, _ = simulated(Spin(threads), threads, quota * 1.6)
    predicted = effects.forecast(found, LimitChange(quota * 1.6 / 100))
    assert predicted.throttled.high == pytest.approx(wider.throttled, rel=0.08, abs=20)
    assert predicted.used.high == pytest.approx(wider.used, rel=0.03)


def beside(threads: int, quota_ms: float | None, weight: int, cpus: int = 2, seconds: float = 10) -> Rates:
    """What a kernel would count of spinning threads beside others that leave no CPU idle."""
    limit = CFSLimit(int(quota_ms * MS)) if quota_ms else None
    own = ScenarioPod("p", (ScenarioContainer("c", (Spin(threads),), 100 * weight, limit),))
    other = ScenarioPod("q", (ScenarioContainer("c", (Spin(cpus),), 100),))
    found = run(Scenario("t", "", SimulatedMachine(cpus), (own, other), seconds=seconds), 7).of("p/c")
    return Rates(
        seconds,
        used=found.stat.usage_ns / MS / seconds,
        throttled=found.stat.throttled_ns / MS / seconds,
        periods=found.stat.nr_periods,
        throttled_periods=found.stat.nr_throttled,
        queued=found.runnable * 1000 - found.stat.usage_ns / MS / seconds,
        quota=Quota(int((quota_ms or 0) * 1000) or None),
    )


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("quota", "weight"), [(30, 1), (45, 1), (55, 2), (20, 3)])
def test_threads_that_never_pause_beside_others_are_not_taken_for_requests(threads, quota, weight):
    rates = beside(threads, quota, weight)
    measured = Measurement(
        rates, cpus=2, threads=threads, load=CPULoad(2, 2000.0), losses=Losses(neighbours=1.0, paused=0.0)
    )
    found = judgement.fit_model(measured, rates)
    assert found.shape is LoadShape.BUSY
    assert max(found.wants, found.cpus) == pytest.approx(threads, rel=0.02)
    for limit in (None, 0.7, 1.0, 2.0):
        predicted, after = (
            effects.forecast(found, LimitChange(limit)),
            beside(threads, limit and 100 * limit, weight),
        )
        assert after.used is not None
        assert predicted.used.low * 0.99 <= after.used <= predicted.used.high * 1.01
        if predicted.throttled:
            assert after.throttled is not None
            assert predicted.throttled.low <= after.throttled <= max(predicted.throttled.high, 10)
    offered = kinds(judgement.advise(WEB, measured))
    assert offered[OptionKind.RAISE_LIMIT].limit == threads
    assert OptionKind.ADD_BURST not in offered


def test_a_p99_without_a_fit_asks_for_the_latency_only_where_it_was_not_given():
    log = RequestLog(30.0, tuple(range(0, 30_000_000_000, 300_000_000)), tuple([5.0] * 100))
    fit = effects.Fit(LoadShape.UNFITTED, 4, 60, 900, 20, 100)
    found = effects.forecast(fit, LimitChange(None))
    assert "--latency" in effects.tail(fit, found, Latency({99.0: 5.0}))[1]
    assert effects.tail(fit, found, Latency.of_log(log))[1].endswith("this latency: measure longer")


def test_a_cgroup_that_is_no_pods_is_in_no_namespace():
    plain = Measurement(BUSY, container="system.slice/nginx.service", cpus=4)
    pod = Measurement(BUSY, pod="web", container="app", cpus=4)
    assert [key for (key, _), _ in judgement.workloads([plain, pod], ClusterSnapshot())] == [
        ("", "", ""),
        ("", "default", "web"),
    ]


def test_what_the_model_does_not_reproduce_has_no_prediction_but_what_is_certain():
    odd = replace(BUSY, used=60, throttled=900, periods=300, throttled_periods=3)
    found = judgement.advise(WEB, Measurement(odd, cpus=4))
    assert found.fit is not None
    assert found.fit.shape is LoadShape.UNFITTED
    options = kinds(found)
    assert options[OptionKind.DROP_LIMIT].effect.throttled.high == 0
    assert options[OptionKind.RAISE_LIMIT].title == "raise the limit to 4"
    threads = options[OptionKind.SET_THREADS].effect
    assert threads.throttled is None
    assert "measure longer" in threads.no_throttled


@given(st.floats(0.1, 8), st.floats(0.1, 8), st.floats(0.5, 8))
def test_a_higher_limit_is_never_predicted_to_throttle_more(first, second, width):
    low, high = sorted((first, second))
    one = effects.Fit(LoadShape.BUSY, width, 100.0, 500.0, 10.0, 100.0)
    before, after = effects.forecast(one, LimitChange(low)), effects.forecast(one, LimitChange(high))
    assert after.throttled.high <= before.throttled.high
    assert after.used.high >= before.used.high
    assert effects.forecast(one, LimitChange(None)).throttled.high == 0


def test_half_the_periods_throttled_with_a_thousandth_lost_is_left_alone():
    little = Rates(
        30, used=1998, throttled=2, periods=300, throttled_periods=150, quota=Quota(200_000), waiting=0
    )
    found = judgement.advise(replace(WEB, limit=2000), Measurement(little, cpus=4))
    assert found.answer is Answer.LEAVE
    assert found.level is CostLevel.LOW
    assert not found.options
    assert "150 of 300 periods count as throttled, but only 0.10%" in found.why


def test_a_container_without_a_limit_is_left_alone():
    found = judgement.advise(WEB, Measurement(Rates(30, used=500)))
    assert (found.answer, found.why) == (Answer.LEAVE, "no CPU limit")


def test_two_percent_use_that_loses_most_of_its_time_is_not_left_alone():
    rates, _ = simulated(bursts(100, 1, 5037), 2, 5, seconds=60)
    assert rates.used is not None
    assert rates.used < 25
    assert rates.periods is not None
    found = judgement.advise(WEB, Measurement(rates, cpus=2))
    assert (found.answer, found.level) == (Answer.CHANGE, CostLevel.HIGH)


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        (Unusable("its counters began anew (usage_us): it was restarted meanwhile"), "restarted"),
        (
            replace(BUSY, notes=("no samples for 300 s: what happened there is averaged",)),
            "no samples for 300 s",
        ),
        (replace(BUSY, notes=("its limit changed meanwhile",)), "its limit changed"),
        (
            replace(BUSY, seconds=2.0, periods=20, throttled_periods=20),
            "at least 50 periods (5 s) are required",
        ),
        (replace(BUSY, periods=3, throttled_periods=3), "at least 5 are required"),
        (replace(BUSY, used=None), "container_cpu_usage_seconds_total"),
        (replace(BUSY, throttled=None), "container_cpu_cfs_throttled_seconds_total"),
        (replace(BUSY, periods=None), "container_cpu_cfs_periods_total"),
        (replace(BUSY, quota=Quota()), "container_spec_cpu_quota"),
        (replace(BUSY, throttled=9000), "more than its 4 CPUs"),
        (replace(BUSY, throttled_periods=400), "do not belong together"),
    ],
)
def test_data_that_cannot_carry_advice_is_refused_with_the_reason(rates, words):
    found = judgement.advise(WEB, Measurement(rates, cpus=4))
    assert found.answer is Answer.REFUSED
    assert not found.options
    assert words in found.why


def test_by_default_the_limit_is_dropped_and_any_other_limit_is_a_named_deviation():
    found = judgement.advise(WEB, Measurement(BUSY, cpus=4))
    assert found.best is not None
    assert found.best.kind is OptionKind.DROP_LIMIT
    assert found.options[0] is found.best
    assert not found.best.deviation
    kept = kinds(found)[OptionKind.RAISE_LIMIT]
    assert "violates the policy" in kept.deviation
    assert kept.title == "raise the limit to 4"
    assert kept.effect.throttled.high == 0


def test_threads_stacked_on_one_cpu_show_in_what_they_waited():
    """Throttled time is one CPU's; once the limit goes both threads have one each."""
    stacked = replace(BUSY, throttled=790, stalled=None, queued=1780.0)
    found = judgement.advise(replace(WEB, settings=()), Measurement(stacked, cpus=4))
    options = kinds(found)
    assert options[OptionKind.RAISE_LIMIT].title == "raise the limit to 2"
    assert options[OptionKind.DROP_LIMIT].effect.used.high == pytest.approx(1980)
    assert options[OptionKind.RAISE_LIMIT].effect.throttled.high == 0


def test_waiting_that_the_limit_does_not_explain_is_remarked_wherever_it_was_counted():
    waiting = replace(BUSY, throttled=300, waiting=700)
    (remark, *_) = judgement.advise(WEB, Measurement(waiting, cpus=4)).remarks
    assert remark.startswith("the limit is not the only cause: waits 400 ms/s for a CPU")
    divided = Losses(limit=300.0, neighbours=400.0)
    (remark, *_) = judgement.advise(WEB, Measurement(waiting, cpus=4, losses=divided)).remarks
    assert remark.startswith("other processes or the hypervisor delay it 400 ms/s, too")
    assert not judgement.advise(WEB, Measurement(replace(BUSY, throttled=300, waiting=300), cpus=4)).remarks


def test_burst_is_no_option_for_threads_that_never_stop():
    assert OptionKind.ADD_BURST not in kinds(judgement.advise(WEB, Measurement(BUSY, cpus=4)))


ALONE = NodePod("shop/other", QOSClass.BURSTABLE, 500)
GREEDY = NodePod("shop/greedy", QOSClass.BEST_EFFORT, 0)
OWN = NodePod("shop/web-1", QOSClass.BURSTABLE, 200, own=True)


@pytest.mark.parametrize(
    ("choice", "pods", "kind", "title"),
    [
        ("never", (OWN, GREEDY), OptionKind.DROP_LIMIT, "drop the CPU limit"),
        ("allowed", (OWN, ALONE), OptionKind.DROP_LIMIT, "drop the CPU limit"),
        ("allowed", (OWN, GREEDY), OptionKind.SET_THREADS, "run 1 thread"),
        ("equal-to-request", (OWN, ALONE), OptionKind.RAISE_LIMIT, "raise request and limit to 4"),
    ],
)
def test_the_policy_decides_between_the_options(choice, pods, kind, title):
    node = NodeOccupancy("n1", 4000, pods)
    found = judgement.advise(WEB, Measurement(BUSY, cpus=4), [node], Policy(cpu_limit=choice))
    assert found.best is not None
    assert (found.best.kind, found.best.title[: len(title)]) == (kind, title)


def test_a_batch_workload_may_keep_its_limit():
    found = judgement.advise(replace(WEB, kind="Job", batch=True), Measurement(BUSY, cpus=4))
    assert found.best is not None
    assert found.best.kind is not OptionKind.DROP_LIMIT
    assert not found.best.deviation


def test_a_container_with_exclusive_cpus_keeps_its_limit_and_has_its_quota_lifted_on_the_node():
    pinned = replace(WEB, qos=QOSClass.GUARANTEED, request=2000, limit=2000, exclusive=2)
    rates, _ = simulated(bursts(600, 2), 2, 150)
    rates = replace(
        rates, quota=Quota(200_000), used=1900.0, throttled=90.0, periods=300, throttled_periods=290
    )
    found = judgement.advise(pinned, Measurement(rates, cpus=2))
    (only,) = found.options
    assert only.kind is OptionKind.LIFT_QUOTA
    assert only.patch is None
    assert only.effect.throttled.high == 0
    assert only.risk.level is RiskLevel.NONE
    said = " ".join(only.consequences)
    assert "DisableCPUQuotaWithExclusiveCPUs" in said
    assert "corelane" in said
    assert "loses its exclusive CPUs" in said


def test_use_beyond_its_exclusive_cpus_shows_that_nobody_pinned_it():
    pinned = replace(WEB, qos=QOSClass.GUARANTEED, exclusive=1)
    found = judgement.advise(pinned, Measurement(BUSY, cpus=4))
    assert any("not static" in remark for remark in found.remarks)


def test_a_sidecar_on_whose_limit_the_pods_class_hangs_raises_request_and_limit_together():
    sidecar = replace(WEB, qos=QOSClass.GUARANTEED, exclusive_siblings=("main",))
    found = judgement.advise(sidecar, Measurement(BUSY, cpus=4))
    options = kinds(found)
    assert OptionKind.DROP_LIMIT not in options
    assert OptionKind.WHOLE_CPUS not in options
    best = found.best
    assert best is options[OptionKind.RAISE_LIMIT]
    assert "QoS class stays Guaranteed" in best.consequences
    assert any("gets 4 exclusive CPUs, too" in one for one in best.consequences)
    assert best.patch is not None
    resources = best.patch.content["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert resources == {"limits": {"cpu": "4"}, "requests": {"cpu": "4"}}


def test_where_nothing_that_may_be_changed_helps_it_is_left_alone():
    """A sidecar that must keep limit = request, and is wide enough already."""
    sidecar = replace(WEB, qos=QOSClass.GUARANTEED, exclusive_siblings=("main",), request=1000, limit=1000)
    full = replace(BUSY, used=995, throttled=20, periods=300, throttled_periods=290, quota=Quota(100_000))
    found = judgement.advise(sidecar, Measurement(full, cpus=4))
    assert found.answer is Answer.LEAVE
    assert "no available change" in found.why


def test_effects_on_the_qos_class_are_stated():
    guaranteed = replace(WEB, qos=QOSClass.GUARANTEED)
    dropped = kinds(judgement.advise(guaranteed, Measurement(BUSY, cpus=4)))[OptionKind.DROP_LIMIT]
    assert any("from Guaranteed to Burstable" in one for one in dropped.consequences)
    whole = kinds(judgement.advise(replace(WEB, siblings={"log": ({}, {})}), Measurement(BUSY, cpus=4)))[
        OptionKind.WHOLE_CPUS
    ]
    assert any("from Burstable to Guaranteed" in one for one in whole.consequences)
    assert any("log must have limit = request" in one for one in whole.consequences)


def test_the_qos_class_after_a_change_is_that_of_kubernetes():
    pod_level = replace(WEB, qos=QOSClass.GUARANTEED, pod_level=True)
    dropped = kinds(judgement.advise(pod_level, Measurement(BUSY, cpus=4)))[OptionKind.DROP_LIMIT]
    assert "QoS class stays Guaranteed" in dropped.consequences
    assert changes.qos_after(WEB, changes.NewResources(0, 0, 0, 0)) is QOSClass.BEST_EFFORT


def test_effects_on_an_autoscaler_are_stated_and_in_general_where_there_is_none():
    scaled = replace(WEB, scalers=(Scaler("HorizontalPodAutoscaler web", 80, "", 200),))
    dropped = kinds(judgement.advise(scaled, Measurement(BUSY, cpus=4)))[OptionKind.DROP_LIMIT]
    (said,) = (one for one in dropped.consequences if "HorizontalPodAutoscaler" in one)
    assert "utilisation 100 % now, then 100 % to 2000 %" in said.replace("100 to", "100 % to")
    assert "adds replicas" in said
    general = kinds(judgement.advise(WEB, Measurement(BUSY, cpus=4)))[OptionKind.DROP_LIMIT]
    assert any("an autoscaler on CPU utilisation would read" in one for one in general.consequences)


def test_threads_are_set_by_what_sets_them_now():
    subject = replace(
        WEB,
        limit=2000,
        threads=8,
        settings=(
            ThreadSetting("OMP_NUM_THREADS", 4, env=True),
            ThreadSetting("WEB_CONCURRENCY", 2, processes=True, env=True),
        ),
    )
    busy = replace(BUSY, used=2000.0, throttled=6000.0, quota=Quota(200_000))
    option = kinds(judgement.advise(subject, Measurement(busy, cpus=8)))[OptionKind.SET_THREADS]
    assert option.effect.throttled.high == 0
    assert option.patch is not None
    env = option.patch.content["spec"]["template"]["spec"]["containers"][0]["env"]
    assert env == [
        {"name": "OMP_NUM_THREADS", "value": "1", "valueFrom": None},
        {"name": "WEB_CONCURRENCY", "value": "2", "valueFrom": None},
    ]


def test_a_collectors_threads_are_lowered_with_the_jvms_cpus():
    options = "-XX:ParallelGCThreads=20 -XX:ConcGCThreads=1"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "app", "env": [{"name": "JAVA_OPTS", "value": options}]}]},
    }
    cluster = ClusterSnapshot()
    cluster.add(manifests.objects(located(pod), "pods.json"))
    subject = cluster.subject("default", "web", "app")
    assert subject.threads is None, "the application's threads are not known"
    title, patch = changes.threads_patch(subject, 2)
    assert title == "-XX:ActiveProcessorCount 2 in its arguments, -XX:ParallelGCThreads 2 in its arguments"
    assert patch is None


@pytest.mark.parametrize(
    ("runtime", "title", "value"),
    [
        ("OMP_NUM_THREADS", "run 1 thread: OMP_NUM_THREADS=1", "1"),
        ("JAVA_TOOL_OPTIONS", "run 1 thread: JAVA_TOOL_OPTIONS=-XX:Active", "-XX:ActiveProcessorCount=1"),
        ("worker_processes", "run 1 thread: worker_processes 1", None),
        ("", "run 1 thread: GOMAXPROCS=1 (or", None),
    ],
)
def test_threads_are_set_by_what_the_image_reads_and_a_guess_is_not_patched(runtime, title, value):
    option = kinds(judgement.advise(replace(WEB, runtime=runtime), Measurement(BUSY, cpus=4)))[
        OptionKind.SET_THREADS
    ]
    assert option.title.startswith(title)
    assert (option.patch is None) == (value is None)
    if option.patch:
        (entry,) = option.patch.content["spec"]["template"]["spec"]["containers"][0]["env"]
        assert entry == {"name": runtime, "value": value}


def test_arguments_are_named_but_never_patched():
    flag = ThreadSetting("gunicorn --workers", 4, processes=True)
    option = kinds(judgement.advise(replace(WEB, settings=(flag,), threads=4), Measurement(BUSY, cpus=4)))
    assert "gunicorn --workers 1 in its arguments" in option[OptionKind.SET_THREADS].title
    assert option[OptionKind.SET_THREADS].patch is None


def test_no_request_gets_one_with_the_limits_end():
    found = judgement.advise(replace(WEB, request=0), Measurement(BUSY, cpus=4))
    assert found.best is not None
    assert found.best.title == "drop the CPU limit, request 240m"
    assert any("no CPU request" in remark for remark in found.remarks)


def test_what_the_policy_wants_of_memory_is_remarked():
    found = judgement.advise(replace(WEB, memory_limit=2 * GI), Measurement(BUSY, cpus=4))
    assert any("memory limit" in remark for remark in found.remarks)


# The 99th percentile.


def test_no_p99_is_made_of_totals():
    effect = kinds(judgement.advise(WEB, Measurement(BUSY, cpus=4)))[OptionKind.DROP_LIMIT].effect
    assert effect.tail is None
    assert "--latency" in effect.no_tail


@settings(max_examples=10, deadline=None)
@given(
    st.floats(0, 8000),
    st.floats(0, 8000),
    st.integers(0, 400),
    st.integers(0, 400),
    st.integers(1000, 400_000),
    st.sampled_from([0, 1, 4, 16]),
)
def test_whatever_was_counted_there_is_an_answer_or_a_reason(used, throttled, periods, late, quota, cpus):
    rates = Rates(
        40, used=used, throttled=throttled, periods=periods, throttled_periods=late, quota=Quota(quota)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judgement, "QUICK", Effort(4, 2, 1, 1))
        found = judgement.advise(WEB, Measurement(rates, cpus=cpus))
    assert found.why
    assert (found.answer is Answer.CHANGE) == bool(found.options)
    for one in found.options:
        if one.effect.throttled is None:
            assert one.effect.no_throttled
            continue
        assert 0 <= one.effect.throttled.low <= one.effect.throttled.high
        assert math.isfinite(one.effect.throttled.high)
        assert math.isfinite(one.effect.stop.high)
