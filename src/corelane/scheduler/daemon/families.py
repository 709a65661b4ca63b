"""The metrics' names, labels, buckets and help: kube-scheduler's (1.36), and corelane's own.

What corelane adds without a counterpart upstream begins with `corelane_scheduler_`. Gauges are in `metrics`.
"""

from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from corelane.prometheus import FrequentHistogram


def exponential(first: float, factor: float, count: int) -> tuple[float, ...]:
    """Return the upper bounds of buckets, as client_golang's ExponentialBuckets."""
    return tuple(first * factor**number for number in range(count))


ATTEMPT_BUCKETS: Final = exponential(0.001, 2, 15)
PENDING_HELP: Final = (
    "Number of pending pods, by the queue type. 'active' means number of pods in activeQ; 'backoff' means "
    "number of pods in backoffQ; 'unschedulable' means number of pods in unschedulablePods that the "
    "scheduler attempted to schedule and failed; 'gated' is the number of unschedulable pods that the "
    "scheduler never attempted to schedule because they are gated."
)
UNSCHEDULABLE_HELP: Final = (
    "The number of unschedulable pods broken down by plugin name. A pod will increment the gauge for all "
    "plugins that caused it to not schedule and so this metric have meaning only when broken down by plugin."
)
LEADER_HELP: Final = (
    "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates "
    "master. 'name' is the string used to identify the lease. Please make sure to group by name."
)


class Families:
    """Counters and histograms of a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        count, time = partial(Counter, registry=registry), partial(Histogram, registry=registry)
        time_often = partial(FrequentHistogram, registry=registry)
        result = ("result", "profile")
        self.schedule_attempts = count(
            "scheduler_schedule_attempts_total",
            "Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not be "
            "scheduled, while 'error' means an internal scheduler problem.",
            result,
        )
        self.attempt_duration = time(
            "scheduler_scheduling_attempt_duration_seconds",
            "Scheduling attempt latency in seconds (scheduling algorithm + binding)",
            result,
            buckets=ATTEMPT_BUCKETS,
        )
        self.algorithm_duration = time(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Scheduling algorithm latency in seconds",
            buckets=ATTEMPT_BUCKETS,
        )
        self.sli_duration = time(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue and "
            "might involve multiple scheduling attempts.",
            ("attempts",),
            buckets=exponential(0.01, 2, 20),
        )
        self.pod_attempts = time(
            "scheduler_pod_scheduling_attempts",
            "Number of attempts to successfully schedule a pod.",
            buckets=exponential(1, 2, 5),
        )
        self.extension_points = time_often(
            "scheduler_framework_extension_point_duration_seconds",
            "Latency for running all plugins of a specific extension point.",
            ("extension_point", "status", "profile"),
            buckets=exponential(0.0001, 2, 12),
        )
        self.plugins = time(
            "scheduler_plugin_execution_duration_seconds",
            "Duration for running a plugin at a specific extension point.",
            ("plugin", "extension_point", "status"),
            buckets=exponential(0.00001, 1.5, 20),
        )
        self.permit_wait = time(
            "scheduler_permit_wait_duration_seconds",
            "Duration of waiting on permit.",
            ("result",),
            buckets=ATTEMPT_BUCKETS,
        )
        self.event_handling = time_often(
            "scheduler_event_handling_duration_seconds",
            "Event handling latency in seconds.",
            ("event",),
            buckets=exponential(0.0001, 2, 12),
        )
        self.after_flush = count(
            "scheduler_pod_scheduled_after_flush_total",
            "Number of pods that were successfully scheduled after being flushed from unschedulablePods due "
            "to timeout. This metric helps detect potential queueing hint misconfigurations or event "
            "handling issues.",
        )
        self.preemption_attempts = count(
            "scheduler_preemption_attempts_total", "Total preemption attempts in the cluster till now"
        )
        self.preemption_victims = time(
            "scheduler_preemption_victims",
            "Number of selected preemption victims",
            buckets=exponential(1, 2, 7),
        )
        self.queue_incoming = count(
            "scheduler_queue_incoming_pods_total",
            "Number of pods added to scheduling queues by event and queue type.",
            ("queue", "event"),
        )
        self.bindings = count(
            "corelane_scheduler_bindings_total",
            "Answers to bindings: bound, rejected, throttled, conflict or unknown.",
            ("outcome",),
        )
        self.evictions = count(
            "corelane_scheduler_evictions_total",
            "Victims of preemption by what the API server answered: evicted or failed.",
            ("outcome",),
        )
        self.refused = count(
            "corelane_scheduler_refused_after_binding_total",
            "Pods that their node refused after they were bound, by the node's reason.",
            ("reason",),
        )
        self.reallocated = count(
            "corelane_scheduler_reallocated_pods_total",
            "Pods to which their node allocated other CPUs than the scheduler proposed.",
        )
        self.lost_writes = count(
            "corelane_scheduler_lost_writes_total",
            "Conditions and events of pods that were not written: too many (dropped), or an error (failed).",
            ("why",),
        )
        self.malformed = count(
            "corelane_scheduler_malformed_objects_total",
            "Objects that could not be decoded, or in part only; the log names them.",
            ("kind",),
        )
        self.lists = count(
            "corelane_scheduler_lists_total", "Lists of all objects, at start and after 410 Gone.", ("kind",)
        )
        self.watch_failures = count(
            "corelane_scheduler_watch_failures_total", "Lists and watches that failed.", ("kind",)
        )
        self.problems = count(
            "corelane_scheduler_unusable_topologies_total",
            "NodeResourceTopologies that were read and could not be used.",
        )
