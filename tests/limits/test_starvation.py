"""Requests for containers that other processes hold back, computed by hand."""

import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.kernel.cpu_time.competitors import Claim, Competition, Competitor
from corelane.kernel.cpu_time.counters import Quota, Rates
from corelane.kernel.cpu_time.threads import Losses
from corelane.limits.advice import judgement, starvation
from corelane.limits.advice.changes import RiskLevel
from corelane.limits.advice.inference import Effort
from corelane.limits.advice.judgement import Answer
from corelane.limits.advice.options import OptionKind
from corelane.limits.advice.subjects import NodeOccupancy, NodePod, Subject
from corelane.limits.lint.policy import Policy
from corelane.limits.measure import CostLevel, Latency, Measurement, RequestLog
from corelane.view import tables
from corelane.view.limits import advice as view
from corelane.workload.request import QOSClass

WEB = Subject("Deployment", "shop", "web", "app", request=100)
BATCH = "/sys/fs/cgroup/cpu/kubepods/burstable/pod11111111-2222-3333-4444-555555555555"
UID = "11111111-2222-3333-4444-555555555555"
V1 = staticmethod(lambda shares: shares)


@pytest.fixture(autouse=True)
def _little_effort(monkeypatch):
    for name in ("FULL", "QUICK"):
        monkeypatch.setattr(judgement, name, Effort(4, 2, 1, 1))


def beside(own: int = 102, active: int = 922, used: float = 900.0) -> Competition:
    """A pod of 100m, and one of 900m that is always busy, on one CPU."""
    claims = (Claim("/k/pod1/app", own, 0), Claim("/k/burstable/poda1", own, active))
    claims += (Claim("/k/burstable", own + active, 0),)
    rival = Competitor(BATCH, active, active / own, used)
    return Competition(own, own / (own + active), (rival,), claims)


def measured(used: float = 100.0, waited: float = 60.0, *, paused: float | None = 0.0, **more) -> Measurement:
    rates = Rates(30.0, used=used, throttled=0.0, queued=waited)
    losses = Losses(neighbours=waited, paused=paused)
    return Measurement(rates, cpus=1, losses=losses, competition=beside(), **more)


def log(sent: int = 450, answered: int = 300) -> Latency:
    """30 seconds, of each request the work of 10 ms; a queue that grows."""
    moments = tuple(round(number * 30e9 / sent) for number in range(sent))
    took = tuple(100.0 if number < answered else 60_000.0 for number in range(sent))
    return Latency.of_log(RequestLog(30.0, moments, took))


def advise(found: Measurement, subject: Subject = WEB, nodes=(), **more) -> judgement.Advice:
    return judgement.advise(subject, found, nodes, weight=lambda shares: shares, **more)


def test_requests_that_queue_up_show_what_is_needed():
    """100m for 300 of 450 requests: 150m for all; entitled to 15 % more: w / (w + 922) = 0.1725, w = 192."""
    found = starvation.find(replace(measured(waited=800), latency=log()), 100, unified=False)
    assert found is not None
    assert (found.need.low, found.need.high) == (pytest.approx(150), pytest.approx(150))
    assert found.request == 190
    assert found.gets == pytest.approx(150)
    assert found.entitled == pytest.approx(100, abs=1)


def test_the_weight_of_the_new_request_is_against_all_others_together():
    """190m are 194 shares beside 922, where 102 were: the others weigh 102 / 194 of what they did."""
    found = starvation.find(replace(measured(waited=800), latency=log()), 100, unified=False)
    assert found is not None
    assert found.weight == pytest.approx(194 / 102)


def test_a_recommendation_from_use_understates_the_need():
    found = starvation.find(replace(measured(waited=800), latency=log()), 100, unified=False)
    assert found is not None
    assert found.use == 115
    assert found.use_gets == pytest.approx(1000 * 117 / (117 + 922), abs=1)
    assert found.use_gets < found.need.low


def test_the_request_the_losers_and_the_guarantee_are_said():
    web, batch = (
        NodePod("shop/web-1", QOSClass.BURSTABLE, 100, own=True),
        NodePod("etl/batch", QOSClass.BURSTABLE, 900),
    )
    node = NodeOccupancy("n1", 2000, (web, batch))
    found = advise(
        replace(measured(waited=800), latency=log()), nodes=[node], names={UID: ("etl", "batch", "")}
    )
    assert found.answer is Answer.CHANGE
    best = found.best
    assert best is not None
    assert (best.kind, best.title) == (OptionKind.RAISE_REQUEST, "raise the request to 190m")
    assert best.risk.level is RiskLevel.LOW
    assert "1.09 of 2 CPUs requested then, so it is guaranteed" in best.risk.why
    texts = "\n".join(best.consequences)
    assert "must give way: etl/batch uses 900m, then 850m" in texts
    assert "VPA: 90th percentile and 15 %) is 115m, which entitles it to 113m" in texts
    assert best.patch is not None
    assert '"requests":{"cpu":"190m"}' in best.patch.text.replace(" ", "")


def test_a_node_that_is_full_cannot_guarantee_it():
    pods = (NodePod("a", QOSClass.BURSTABLE, 100, own=True), NodePod("b", QOSClass.BURSTABLE, 900))
    found = advise(replace(measured(waited=800), latency=log()), nodes=[NodeOccupancy("n1", 1000, pods)])
    assert found.best is not None
    assert found.best.risk.level is RiskLevel.HIGH
    assert "1.09 of 1 CPUs would be requested: not guaranteed" in found.best.risk.why


def test_a_need_that_counters_do_not_show_gives_no_request_but_what_to_collect():
    """It asks for all of the CPU: how much of that is a backlog is not in the counters."""
    found = advise(measured(waited=800))
    assert found.answer is Answer.LEAVE
    assert "it needs between 100m and 900m" in found.why
    assert "--latency FILE" in found.why
    assert found.why in printed(found), "beside the table, not only in JSON"


def printed(found: judgement.Advice) -> str:
    out = io.StringIO()
    view.show([found], (), tables.console(out), everything=False)
    return out.getvalue()


def test_work_that_pauses_needs_what_it_used_and_a_margin():
    found = starvation.find(measured(100, 90, paused=0.3), 100, unified=False)
    assert found is not None
    assert (found.need.low, found.need.high) == (100, 150)
    assert found.request == 160  # w / (w + 922) = 0.15: w = 163 shares


def test_little_waiting_is_no_starvation():
    assert starvation.find(measured(waited=10), 100, unified=False) is None
    assert starvation.find(measured(900, 50), 100, unified=False) is None
    noisy = measured()
    noisy = replace(noisy, losses=Losses(neighbours=60, error=40))
    assert starvation.find(noisy, 100, unified=False) is None
    assert starvation.find(replace(noisy, losses=None), 100, unified=False) is None
    assert starvation.find(replace(measured(), competition=None), 100, unified=False) is None


def test_who_uses_less_than_its_share_is_not_given_more():
    """Waits of some ms at every wake-up do not go away with weight."""
    found = advise(replace(measured(40, 60), competition=beside(1024, 1024)), replace(WEB, request=1000))
    assert found.answer is Answer.LEAVE
    assert "a larger request does not help" in found.why


def test_who_is_entitled_to_its_need_already_is_not_given_more():
    """Nothing is active beside it: what delayed it came from elsewhere, as from threads of the kernel."""
    found = advise(replace(measured(80, 20), competition=beside(102, 0)))
    assert found.answer is Answer.LEAVE
    assert "uses 80m of the 1000m that its weight entitles it to" in found.why


def test_nearly_all_of_its_cpus_is_nothing_that_a_weight_guarantees():
    found = advise(measured(600, 390))
    assert found.answer is Answer.LEAVE
    assert "no weight guarantees that" in found.why


def test_the_largest_cause_comes_first_and_its_option_is_recommended():
    quota = Quota(200_000, 100_000)
    rates = Rates(
        30.0, used=100.0, throttled=8.0, queued=800.0, periods=300, throttled_periods=30, quota=quota
    )
    found = replace(measured(waited=773), latency=log(), rates=rates)
    advised = advise(
        replace(found, losses=Losses(limit=8.0, neighbours=773.0, paused=0.0)), replace(WEB, limit=2000)
    )
    assert advised.why.startswith("waits 773 ms/s for other processes")
    assert advised.options[0].kind is OptionKind.RAISE_REQUEST
    assert [option.kind for option in advised.options if option.recommended] == [OptionKind.RAISE_REQUEST]


def test_exclusive_cpus_are_an_option_for_a_container_that_others_hold_back_with_its_manifest():
    subject = replace(WEB, memory_request=1 << 30, memory_limit=1 << 30)
    found = advise(replace(measured(waited=800), latency=log()), subject)
    (exclusive,) = [option for option in found.options if option.kind is OptionKind.WHOLE_CPUS]
    assert exclusive.title == "request 1 exclusive CPU: limit = request = 1"
    assert not exclusive.recommended
    assert exclusive.patch is not None
    amounts = {"cpu": "1", "memory": str(1 << 30)}
    (container,) = exclusive.patch.content["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == {"requests": amounts, "limits": amounts}
    without = advise(replace(measured(waited=800), latency=log()), subject, policy=Policy())
    assert OptionKind.WHOLE_CPUS not in {option.kind for option in without.options}


def test_waits_for_other_processes_count_as_cost():
    verdict = measured(used=500, waited=800).verdict
    assert verdict is not None
    assert (verdict.level, verdict.of_limit) == (CostLevel.HIGH, CostLevel.NONE)


def test_a_request_above_the_limit_raises_the_limit():
    subject = replace(WEB, limit=150, memory_request=1, memory_limit=1)
    found = advise(replace(measured(waited=800), latency=log()), subject)
    assert found.best is not None
    assert found.best.title == "raise the request and limit to 190m"
    assert found.best.risk.level is RiskLevel.UNKNOWN, "no pods are known"


def test_exclusive_cpus_are_not_shared():
    assert advise(measured(), replace(WEB, exclusive=1, request=1000, limit=1000)).answer is Answer.LEAVE


def test_version_2_weights_grow_by_the_kubelets_and_the_runtimes_formulas():
    """100m: 102 shares, cpu.weight 17 in the container (runc 1.3.2) and 4 of the pod."""
    claims = (
        Claim("/k/poda/app", 174, 0),
        Claim("/k/kubepods-burstable.slice/kubepods-poda1.slice", 41, 369),
    )
    rivals = Competition(174, 0.1, (Competitor("/x", 369, 9.0, 900.0),), claims)
    found = starvation.find(
        replace(measured(waited=800), competition=rivals, latency=log()), 100, unified=True
    )
    assert found is not None
    assert found.request is not None
    assert found.request == pytest.approx(192, abs=30), "cpu.weight is an integer: 26 shares a step"
    assert starvation.find(replace(measured(), competition=rivals), None, unified=True) is None


@given(
    st.integers(10, 900), st.integers(2, 8192), st.integers(1, 16), st.floats(20, 4000), st.floats(1, 1000)
)
def test_the_request_is_the_smallest_that_entitles_to_the_need(request_, active, cpus, waited, used):
    own = max(2, request_ * 1024 // 1000)
    rivals = Competition(
        own, own / (own + active), (Competitor("/b", active, 1, 500.0),), (Claim("/a", own, active),)
    )
    found = starvation.find(
        replace(measured(used, waited, paused=0.5), competition=rivals, cpus=cpus), request_, unified=False
    )
    if found is None or found.request is None:
        return

    def entitled(milli: int) -> float:
        weight = own + milli * 1024 // 1000 - own
        return 1000 * cpus * weight / (weight + active)

    assert entitled(found.request) >= found.need.high - 1e-6
    smaller = found.request - 10
    assert smaller < max(request_, found.need.high) or entitled(smaller) < found.need.high
    assert sum(each.used - each.after for each in found.losers) <= max(0, found.gets - used) + 1e-6
