"""Kubernetes objects to plain values and back. No other room parses an annotation."""

from corelane.kube.translate.fields import TranslationError
from corelane.kube.translate.koordlet import KubeletReport, places
from corelane.kube.translate.kubelet_report import (
    differing_cpusets,
    is_static,
    kubelet_settings,
    running_uid,
)
from corelane.kube.translate.node_topology import (
    as_patch,
    as_v1alpha1,
    hardware_key,
    is_koordlets,
    is_leased,
    machine_from_topology,
    names_cpus,
    same_machine,
    state_from_topology,
    topology,
)
from corelane.kube.translate.placement_annotations import proposed_cpus, recorded_cpus, softened
from corelane.kube.translate.placement_record import (
    placement_reasons,
    proposal_annotations,
    reasons_annotation,
    resolved_spec,
)
from corelane.kube.translate.pod_requests import (
    in_pool_annotation,
    placement,
    qos,
    request,
    requests,
    resized,
    resized_in_pool,
    result_annotation,
    running_cpu,
)
from corelane.kube.translate.topology_zones import machine_from_zones
from corelane.workload.request import qos_class

__all__ = [
    "KubeletReport",
    "TranslationError",
    "as_patch",
    "as_v1alpha1",
    "differing_cpusets",
    "hardware_key",
    "in_pool_annotation",
    "is_koordlets",
    "is_leased",
    "is_static",
    "kubelet_settings",
    "machine_from_topology",
    "machine_from_zones",
    "names_cpus",
    "placement",
    "placement_reasons",
    "places",
    "proposal_annotations",
    "proposed_cpus",
    "qos",
    "qos_class",
    "reasons_annotation",
    "recorded_cpus",
    "request",
    "requests",
    "resized",
    "resized_in_pool",
    "resolved_spec",
    "result_annotation",
    "running_cpu",
    "running_uid",
    "same_machine",
    "softened",
    "state_from_topology",
    "topology",
]
