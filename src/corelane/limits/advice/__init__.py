"""Advice on CPU limits: options from measured facts, what a pod asks for, and policy; each with its price."""

from corelane.limits.advice.facts import (
    Evidence,
    Form,
    Latency,
    Neighbour,
    Node,
    Range,
    Scaler,
    Setting,
    Slot,
    Subject,
)
from corelane.limits.advice.fitting import Change, Fit, Outcome, Shape, fit, outcome
from corelane.limits.advice.guarantees import Danger, NodeRisk, Risk, Share, shares
from corelane.limits.advice.judgement import Advice, Answer, advise
from corelane.limits.advice.options import Effect, Kind, Option
from corelane.limits.advice.patches import Patch
from corelane.limits.advice.tails import Tail

__all__ = [
    "Advice",
    "Answer",
    "Change",
    "Danger",
    "Effect",
    "Evidence",
    "Fit",
    "Form",
    "Kind",
    "Latency",
    "Neighbour",
    "Node",
    "NodeRisk",
    "Option",
    "Outcome",
    "Patch",
    "Range",
    "Risk",
    "Scaler",
    "Setting",
    "Shape",
    "Share",
    "Slot",
    "Subject",
    "Tail",
    "advise",
    "fit",
    "outcome",
    "shares",
]
