"""Hooks around the extension points of an attempt, empty here: the core has no clock."""

from typing import Final

SUCCESS: Final = "Success"
UNSCHEDULABLE: Final = "Unschedulable"
UNRESOLVABLE: Final = "UnschedulableAndUnresolvable"
WAIT: Final = "Wait"
SKIP: Final = "Skip"
ERROR: Final = "Error"


class ExtensionPoints:
    """Reports when plugins of an extension point are asked; a point may be begun again in an attempt."""

    def start(self) -> None:
        """An attempt begins, or its next portion."""

    def begin(self, point: str) -> None:
        """Plugins are asked, by kube-scheduler's name of the point. Points are never nested."""

    def end(self, status: str = SUCCESS) -> None:
        """They have answered, with kube-scheduler's name of the status."""

    def failed(self) -> None:
        """A plugin of the point that was begun raised an error."""

    def finish(self, profile: str) -> None:
        """The attempt, or its portion, has ended."""

    def now(self) -> float:
        """Return the time, for `alone`."""
        return 0.0

    def alone(self, point: str, profile: str, begun: float) -> None:
        """Plugins of a point that is not part of an attempt were asked since `begun`; they cannot fail."""
