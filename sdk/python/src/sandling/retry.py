"""Whether a refusal to make something is worth another try, and when. No I/O."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Optional

from .errors import SandlingError

DEFAULT_BUDGET = 60.0
_LONGEST_SPREAD = 15.0


@dataclass(frozen=True)
class CreateRetryEvent:
    """A refusal that is about to be tried again."""

    path: str
    attempt: int
    error: SandlingError
    delay_seconds: float
    elapsed_seconds: float


def delay(error: SandlingError, attempt: int, elapsed: float, budget: float) -> Optional[float]:
    """Seconds to wait before the next attempt; nothing if there should be none.

    A full host says so with 503 or 507, and one that is asked too fast with 429 and a time to come back. A 429 without
    such a time is a quota, which waiting does not change. Several clients are spread out, so that they do not all come
    back at once.
    """
    hint = error.retry_after
    if error.status == 507:
        hint = max(0.5, hint or 0.0)
    elif error.status not in (429, 503) or hint is None:
        return None
    wait = hint + random.uniform(0, min(2.0**attempt, _LONGEST_SPREAD))
    return wait if elapsed + hint < budget else None
