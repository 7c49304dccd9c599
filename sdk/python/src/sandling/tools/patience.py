"""Whether and when to retry a request to a model's server. No I/O."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime
from typing import Optional

from .streams import CutShort, NoAnswer

#: How many attempts are made before the error is raised.
TRIES = 6
LONGEST_WAIT = 30.0
#: 529 is Anthropic's "overloaded".
_PASSING = (408, 429, 500, 502, 503, 504, 529)


def is_passing(error: Exception) -> bool:
    """Whether a retry may succeed. The SDKs share the names of these errors but no base class."""
    if isinstance(error, (CutShort, NoAnswer)):
        return True
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & {"TransportError", "APIConnectionError"}:
        return True
    status = getattr(error, "status_code", None)
    # An error in the middle of a streamed answer.
    if "APIError" in names and status in (None, 200):
        return True
    return status in _PASSING


def was_read(error: Exception) -> bool:
    """Whether the model may have read the request, so that its tokens are charged."""
    names = {kind.__name__ for kind in type(error.__cause__ or error).__mro__}
    if names & {"ConnectError", "ConnectTimeout"}:
        return False
    return getattr(error, "status_code", None) in (None, 200)


def retry_after(error: Exception) -> Optional[float]:
    """Seconds to wait before a retry, if the server said so."""
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return max(0.0, float(headers[name]) * unit)
        except (KeyError, ValueError):
            continue
    until, now = _moment(headers.get("retry-after")), _moment(headers.get("date")) or time.time()
    return None if until is None else max(0.0, until - now)


def _moment(header: Optional[str]) -> Optional[float]:
    """An HTTP date in seconds since 1970. All dates of one answer come from the same clock."""
    try:
        return None if header is None else parsedate_to_datetime(header).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
