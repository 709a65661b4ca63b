"""What can be observed of the controller. Every hook is empty: override what you need."""


class ControllerReporter:
    """Hooks must not raise and must not block."""

    def namespace_ended(self, name: str) -> None:
        """A terminating namespace was empty and is gone."""

    def node_lost(self, name: str, silent_for: float) -> None:
        """A node's agent gave no sign of life for that many seconds."""

    def node_back(self, name: str) -> None:
        """A node that was taken for lost is ready again."""

    def orphan_deleted(self, what: str) -> None:
        """Something was deleted because its node is gone from the API server."""

    def api_failed(self, what: str, error: Exception) -> None:
        """A request failed; it is made again later."""
