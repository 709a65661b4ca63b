"""PodDisruptionBudgets."""

from corelane.embedded.apiserver.schema.notation import META, Columns, record
from corelane.embedded.apiserver.schema.object_meta import kind

POLICY = "io.k8s.api.policy.v1."

record(
    "Condition",
    "type!=1 status!=2 observedGeneration:int64=3 lastTransitionTime!:time=4 reason!=5 message!=6",
    order="@condition",
    package=META,
)

DISRUPTION_SPEC = record(
    "PodDisruptionBudgetSpec",
    "minAvailable?:int-or-string=1 selector?:LabelSelector=2 maxUnavailable?:int-or-string=3 "
    "unhealthyPodEvictionPolicy?=4",
    order="@disruption-numbers selector unhealthyPodEvictionPolicy",
    package=POLICY,
    selector=Columns(strategy="replace"),
    unhealthyPodEvictionPolicy=Columns(enum="AlwaysAllow IfHealthyBudget"),
)

record(
    "PodDisruptionBudgetStatus",
    "observedGeneration:int64=1 disruptedPods:{}time=2 disruptionsAllowed+:int32=3 currentHealthy+:int32=4 "
    "desiredHealthy+:int32=5 expectedPods+:int32=6 conditions:[]Condition=7",
    package=POLICY,
    conditions=Columns(merge="type"),
)

POD_DISRUPTION_BUDGET = kind(
    "PodDisruptionBudget",
    "spec+:PodDisruptionBudgetSpec=2 status+:PodDisruptionBudgetStatus=3",
    order="spec",
    package=POLICY,
)
