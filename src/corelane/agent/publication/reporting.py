"""Hooks for what can be observed of writes to the API server."""


class PublicationReporter:
    """Empty hooks, to be overridden by logs and metrics. Hooks must not raise and must not block."""

    def api_failed(self, what: str, error: Exception) -> None:
        """A write to the API server failed; it is retried unless it is obsolete."""

    def malfunction(self, what: str, error: BaseException) -> None:
        """An unexpected error; the agent continues."""

    def zones_owned_by(self, owner: str) -> None:
        """Another program writes the zones of the NodeResourceTopology; corelane writes annotations only."""
