"""Koordinator's class of a pod that a kubelet brought in before corelane took its node over."""

from typing import Literal, TypeAlias

from corelane.workload import PodQOS, QOSClass

__all__ = ["KubeletPolicy", "of_kubelets_pod"]

KubeletPolicy: TypeAlias = Literal["none", "static"]


def of_kubelets_pod(qos: QOSClass, policy: KubeletPolicy) -> PodQOS:
    """What a running pod without Koordinator's label counts as, by the proposal's rules 6 and 7.

    Guaranteed is LSR under the kubelet's static policy, which gave it CPUs, and LS under none.
    """
    if qos is QOSClass.BEST_EFFORT:
        return PodQOS.BE
    return PodQOS.LSR if qos is QOSClass.GUARANTEED and policy == "static" else PodQOS.LS
