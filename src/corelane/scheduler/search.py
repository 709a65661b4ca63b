"""The search for a node in one attempt, or in its next portion: filters and scores, then PostFilter."""

from collections.abc import Callable
from typing import Final

from corelane.kube.pod import Pod
from corelane.scheduler import cycle as cycles
from corelane.scheduler.attempts import Attempt
from corelane.scheduler.cache.nodes import NodeCache
from corelane.scheduler.framework.plugin import Nomination, NotNominated
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.kept_attempts import KeptAttempts
from corelane.scheduler.preempting import Preemption
from corelane.scheduler.queue import Waiting

JUDGED_AT_ONCE: Final = 512
"""Canonical states that one attempt judges for a shape, about 8 ms where nodes publish zones only."""


class Search:
    """Looks for a pod's node; nothing is claimed. Raises what a plugin raises."""

    def __init__(
        self,
        cluster: NodeCache,
        kept: KeptAttempts,
        preemption: Preemption,
        profile_of: Callable[[Pod], Profile],
    ) -> None:
        self._cluster, self._kept, self._preemption = cluster, kept, preemption
        self._profile_of = profile_of

    def run(self, waiting: Waiting) -> tuple[Attempt, Nomination | NotNominated | None]:
        """Return the attempt, and of one that found no node what the PostFilter plugins say."""
        attempt, result = self._tried(waiting), None
        if attempt.node is None and not attempt.unfinished and self._cluster.count():
            result = self._post_filtered(waiting, attempt)
            if isinstance(result, NotNominated) and result.unfinished:
                self._kept.keep(waiting.info, attempt)
                attempt = Attempt(attempt.cycle, unfinished=True)
        return attempt, result

    def _tried(self, waiting: Waiting) -> Attempt:
        """An attempt on the nominated node, and where that fails, on all nodes."""
        profile, info = self._profile_of(waiting.info.pod), waiting.info
        if kept := self._kept.pop(info):
            return kept
        if nominated := self._cluster.nominations.of(waiting.uid):
            attempt = cycles.attempt(profile, self._cluster, info, frozenset({nominated}), JUDGED_AT_ONCE)
            if attempt.node is not None or attempt.unfinished:
                return attempt
        return cycles.attempt(profile, self._cluster, info, most_judged=JUDGED_AT_ONCE)

    def _post_filtered(self, waiting: Waiting, attempt: Attempt) -> Nomination | NotNominated:
        """What the PostFilter plugins say; in a portion of its own after a search for many reasons."""
        waiting.rejected = not waiting.rejected and self._kept.is_worth_a_portion(attempt)
        if waiting.rejected:
            return NotNominated("", keep=True, unfinished=True)
        return self._preemption.post_filter(self._profile_of(waiting.info.pod), attempt)
