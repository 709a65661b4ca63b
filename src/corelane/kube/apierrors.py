"""Errors of requests to the API server, with Kubernetes' reasons and messages."""

from collections.abc import Mapping
from typing import Any


class APIError(Exception):
    """An answer other than success: code, reason ("NotFound", "Conflict", …), message and details."""

    def __init__(
        self, code: int, reason: str, message: str, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details: Mapping[str, Any] = details or {}

    def __str__(self) -> str:
        return f"{self.message} ({self.code} {self.reason})" if self.code else self.message

    @property
    def retry_after(self) -> int:
        """Seconds to wait before a retry, as the server asks; 0 without."""
        seconds = self.details.get("retryAfterSeconds")
        return seconds if isinstance(seconds, int) else 0


class NoCluster(ValueError):  # noqa: N818 - a state of affairs
    """No valid configuration names a cluster; the message names the file."""


class Gone(APIError):  # noqa: N818 - a state of affairs
    """410: the server no longer has the resourceVersion or page to continue from; list again."""


class Unreachable(APIError):  # noqa: N818 - a state of affairs
    """No answer, or one cut short; `code` is 0. The request may have been carried out."""

    def __init__(self, message: str) -> None:
        super().__init__(0, "Unreachable", message)


class MalformedObject(APIError):  # noqa: N818 - a state of affairs
    """An answer that is not an object of the requested kind."""

    def __init__(self, message: str) -> None:
        super().__init__(0, "Malformed", message)


def of_status(code: int, status: object, fallback: str) -> APIError:
    """Return the error of a decoded `Status` object; for any other answer the message is `fallback`."""
    fields = status if isinstance(status, dict) and status.get("kind") == "Status" else {}
    details = fields.get("details")
    code = int(fields.get("code") or code)
    return (Gone if code == 410 else APIError)(
        code,
        str(fields.get("reason") or ""),
        str(fields.get("message") or fallback),
        details if isinstance(details, dict) else None,
    )
