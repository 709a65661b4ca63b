"""Why the kubelet could not be asked: a reason with its values; the text names the remedy."""

from corelane.reasons import Reason, sentence


class KubeletError(Exception):
    """A request that the kubelet did not answer, or answered with an error."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(sentence(reason))
        self.reason = reason
