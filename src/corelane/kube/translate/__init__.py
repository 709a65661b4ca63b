"""Kubernetes objects to plain values and back. Nobody else parses an annotation."""

from corelane.kube.translate.errors import TranslationError
from corelane.kube.translate.koordinator import places
from corelane.kube.translate.pods import qos, request, requests
from corelane.kube.translate.proposals import read as read_proposal
from corelane.kube.translate.reasons import annotation as reasons_annotation
from corelane.kube.translate.reasons import read as placement_reasons
from corelane.kube.translate.records import annotations as proposal_annotations
from corelane.kube.translate.specs import resolved as resolved_spec
from corelane.kube.translate.topology import (
    as_patch,
    is_damaged,
    is_koordlets,
    machine_from_topology,
    machine_from_zones,
    same_machine,
    state_from_topology,
    topology,
)

__all__ = [
    "TranslationError",
    "as_patch",
    "is_damaged",
    "is_koordlets",
    "machine_from_topology",
    "machine_from_zones",
    "placement_reasons",
    "places",
    "proposal_annotations",
    "qos",
    "read_proposal",
    "reasons_annotation",
    "request",
    "requests",
    "resolved_spec",
    "same_machine",
    "state_from_topology",
    "topology",
]
