"""Advice on CPU limits: options from measurements, what a pod requests, and policy; each with its price."""

from corelane.limits.advice.consequences import NodeRisk, Risk, RiskLevel, Share, shares
from corelane.limits.advice.effects import Fit, Forecast, LimitChange, LoadShape, Range, Tail, forecast
from corelane.limits.advice.fitting import fit
from corelane.limits.advice.judgement import Advice, Answer, advise, advise_workload, workloads
from corelane.limits.advice.options import Effect, Option, OptionKind
from corelane.limits.advice.patches import Patch
from corelane.limits.advice.subjects import ClusterSnapshot, NodeOccupancy, NodePod, Scaler, Subject

__all__ = [
    "Advice",
    "Answer",
    "ClusterSnapshot",
    "Effect",
    "Fit",
    "Forecast",
    "LimitChange",
    "LoadShape",
    "NodeOccupancy",
    "NodePod",
    "NodeRisk",
    "Option",
    "OptionKind",
    "Patch",
    "Range",
    "Risk",
    "RiskLevel",
    "Scaler",
    "Share",
    "Subject",
    "Tail",
    "advise",
    "advise_workload",
    "fit",
    "forecast",
    "shares",
    "workloads",
]
