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

    def finish(self, profile: str) -> None:
        """The attempt, or its portion, has ended."""
