"""What can be wrong with a node's settings, and why a pod cannot come in."""

__all__ = ["NodeConfigError", "Refusal"]


class NodeConfigError(ValueError):
    """A setting that cannot be honoured, at all or on this machine: says which, its value, and what to do."""


class Refusal(Exception):  # noqa: N818 - an outcome, not an error
    """Why a pod cannot come in: `reason` as in the pod's status, the message with upstream's text."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason

    @classmethod
    def unexpected(cls, error: object) -> "Refusal":
        """What the kubelet makes of an error that has no reason of its own."""
        return cls("UnexpectedAdmissionError", f"Allocate failed due to {error}, which is unexpected")
