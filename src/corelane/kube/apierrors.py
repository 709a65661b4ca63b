"""Errors of requests to the API server, with Kubernetes' reasons and messages."""

from collections.abc import Mapping
from typing import Any, Final

_LONGEST_WAIT: Final = 60
"""Longer waits that a server asks for are cut to this, in s: a wrong value must not stop a daemon."""


class APIError(Exception):
    """An answer other than success: code, reason ("NotFound", "Conflict", …), message and details.

    `is_status` tells whether the answer is a Kubernetes `Status`; a proxy's or load balancer's is not.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        *,
        is_status: bool = False,
        retry_after: int = 0,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details: Mapping[str, Any] = details or {}
        self.is_status = is_status
        self._retry_after = retry_after

    def __str__(self) -> str:
        return f"{self.message} ({self.code} {self.reason})" if self.code else self.message

    @property
    def retry_after(self) -> int:
        """Seconds to wait before a retry, as the server asks: header or Status; 0 without, 60 at most."""
        asked = self.details.get("retryAfterSeconds")
        seconds = max(asked if type(asked) is int else 0, self._retry_after, 0)
        return min(seconds, _LONGEST_WAIT)


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


class TooLong(APIError):  # noqa: N818 - a state of affairs
    """An answer of more bytes than are read. A write may have been carried out."""

    def __init__(self, message: str) -> None:
        super().__init__(0, "TooLong", message)


def of_status(code: int, status: object, fallback: str, retry_after: str = "") -> APIError:
    """Return the error of a decoded `Status` object; for any other answer the message is `fallback`.

    `code` is the answer's, 0 for an event of a watch; `retry_after` is the header's text. Only seconds count
    in it, for a date would need two equal clocks.
    """
    is_status = isinstance(status, dict) and status.get("kind") == "Status"
    fields = status if is_status and isinstance(status, dict) else {}
    details, own = fields.get("details"), fields.get("code")
    code = code or (own if type(own) is int else 0)
    return (Gone if code == 410 else APIError)(
        code,
        str(fields.get("reason") or ""),
        str(fields.get("message") or fallback),
        details if isinstance(details, dict) else None,
        is_status=is_status,
        retry_after=int(retry_after) if retry_after.isdecimal() and len(retry_after) < 10 else 0,
    )
