"""Whether and when to retry a refused create. No I/O."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Optional

from .errors import SandlingError

DEFAULT_BUDGET = 60.0
_LONGEST_SPREAD = 15.0


@dataclass(frozen=True)
class CreateRetryEvent:
    """A create that was refused and will be retried."""

    path: str
    attempt: int
    error: SandlingError
    delay_seconds: float
    elapsed_seconds: float


def delay(error: SandlingError, attempt: int, elapsed: float, budget: float) -> Optional[float]:
    """Seconds to wait before the next attempt; ``None`` if there should be none.

    A full host answers with 503 or 507. A rate limit answers with 429 and ``Retry-After``. A 429 without it is a quota,
    which waiting does not change. A random part keeps many clients from retrying at the same moment.
    """
    hint = error.retry_after
    if error.status == 507:
        hint = max(0.5, hint or 0.0)
    elif error.status not in (429, 503) or hint is None:
        return None
    wait = hint + random.uniform(0, min(2.0**attempt, _LONGEST_SPREAD))
    return wait if elapsed + hint < budget else None
