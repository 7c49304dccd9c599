# Made from sandling/_async by scripts/generate_sync.py. Change that, not this.
"""Best of N: tries every candidate in its own fork, keeps the best and ends the others."""

from __future__ import annotations

import functools
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Callable, List, Optional, Sequence, TypeVar, Union

from ..errors import ExploreError, SandboxTimeout, SandlingError
from ..exploring import (
    MARKER,
    MOST_FILES,
    ROOTS,
    BranchOutcome,
    Candidate,
    ExploreResult,
    Select,
    candidates_of,
    check_select,
    pick,
    ranked,
    tail,
)
from .colour import run_all, settle

if TYPE_CHECKING:
    from .sandbox import Sandbox

S = TypeVar("S", bound="Sandbox")

Score = Callable[[S, BranchOutcome[S]], Any]


def explore(
    sandbox: S,
    candidates: Sequence[Union[Candidate, str]],
    *,
    score_fn: Optional[Score[S]] = None,
    select: Select[S] = "max",
    require_success: bool = True,
    max_concurrency: Optional[int] = None,
    cleanup_losers: bool = True,
    promote_winner: bool = True,
    capture_files: Union[bool, str] = True,
    ttl_seconds: int = 600,
    on_outcome: Optional[Callable[[BranchOutcome[S]], Any]] = None,
) -> ExploreResult[S]:
    """Tries every candidate in its own fork and keeps the best.

    :param score_fn: takes the fork and its outcome. By default a branch that succeeded has 1 and the others 0.
    :param select: ``max``, ``min``, or a function that takes the viable outcomes.
    :param require_success: whether only a branch that succeeded can win.
    :param max_concurrency: how many branches run in parallel, 4 by default.
    :param capture_files: lists the files that each branch changed; a string says where to look.
    :param ttl_seconds: how long forks live if this process dies.
    :raises ExploreError: there is no winner. All forks are ended.
    """
    wanted = candidates_of(candidates)
    check_select(select)
    metadata = {"explore": "1", "explore_ttl": str(int(ttl_seconds))}
    forks = sandbox.fork_tree(len(wanted), metadata=metadata)
    try:
        branches = [_Branch(fork, candidate, score_fn, capture_files) for fork, candidate in zip(forks, wanted)]
        steps = [functools.partial(branch.run, on_outcome) for branch in branches]
        outcomes = ranked(run_all(steps, max_concurrency or 4), select)
        winner = pick(outcomes, select, require_success)
        if winner is None:
            raise ExploreError(_no_winner(outcomes), outcomes=outcomes)
    except BaseException:
        end(forks)
        raise
    result = ExploreResult(winner.sandbox, winner, outcomes)
    if len(forks) < len(wanted):
        result.errors.append(f"{len(wanted)} forks were asked for and {len(forks)} made")
    _settle(result, forks, promote_winner, cleanup_losers)
    return result


class _Branch:
    """One candidate in its fork."""

    def __init__(
        self, sandbox: Any, candidate: Candidate, score_fn: Optional[Score[Any]], capture_files: Union[bool, str]
    ) -> None:
        self._candidate = candidate
        self._sandbox = sandbox
        self._score_fn = score_fn
        self._capture = capture_files
        self._outcome: BranchOutcome[Any] = BranchOutcome(candidate.label, sandbox.id, sandbox)

    def run(self, on_outcome: Optional[Callable[[BranchOutcome[Any]], Any]]) -> BranchOutcome[Any]:
        outcome = self._outcome
        started = time.monotonic()
        # Errors of the caller's functions belong to this branch; the others continue.
        try:
            if self._capture:
                self._sandbox.exec(["touch", MARKER], 30)
            self._attempt()
            outcome.duration_ms = round((time.monotonic() - started) * 1000)
            outcome.files_changed = self._files() if self._capture else []
            self._judge()
        except SandboxTimeout as error:
            outcome.timed_out = True
            outcome.stdout_tail, outcome.stderr_tail = tail(error.stdout), tail(error.stderr)
            self._fail(error)
        except Exception as error:
            self._fail(error)
        outcome.duration_ms = outcome.duration_ms or round((time.monotonic() - started) * 1000)
        if on_outcome is not None:
            settle(on_outcome(outcome))
        return outcome

    def _fail(self, error: Exception) -> None:
        self._outcome.ok = False
        self._outcome.error = str(error) or type(error).__name__

    def _attempt(self) -> None:
        candidate, outcome = self._candidate, self._outcome
        if candidate.fn is not None:
            outcome.value = settle(candidate.fn(self._sandbox))
            outcome.ok = True
            return
        result = self._sandbox.exec(candidate.cmd, candidate.timeout_s, env=candidate.env)
        outcome.exit_code, outcome.ok = result.exit_code, result.ok
        outcome.stdout_tail, outcome.stderr_tail = tail(result.stdout), tail(result.stderr)

    def _files(self) -> List[str]:
        roots = self._capture if isinstance(self._capture, str) else ROOTS
        line = f"find {roots} -type f -newer {MARKER} 2>/dev/null | head -n {MOST_FILES}"
        printed: str = (self._sandbox.exec(line, 60)).stdout
        return printed.splitlines()

    def _judge(self) -> None:
        outcome = self._outcome
        if self._candidate.score is not None:
            outcome.score = float(self._candidate.score)
        elif self._score_fn is not None:
            outcome.score = float(settle(self._score_fn(self._sandbox, outcome)))
        else:
            outcome.score = 1.0 if outcome.ok else 0.0


def _no_winner(outcomes: Sequence[BranchOutcome[Any]]) -> str:
    ends = ", ".join(f"{outcome.label}: {outcome.error or f'exit {outcome.exit_code}'}" for outcome in outcomes)
    return f"no branch can be the winner ({ends})"


def _settle(result: ExploreResult[S], forks: Sequence[S], promote: bool, cleanup: bool) -> None:
    result.tree_id = result.winner.metadata.get("fork_tree_id", "")
    if promote:
        try:
            told = result.winner.promote(cleanup_siblings=cleanup, tree_id=result.tree_id or None)
            result.reaped = list(told["deleted"])
            result.reap_failures = dict(told.get("failures") or {})
        except SandlingError as error:
            result.errors.append(f"the winner could not be promoted: {error}")
    if cleanup:
        left = [fork for fork in forks if fork.id != result.winner.id and fork.id not in result.reaped]
        result.reaped += end(left)


def end(forks: Sequence[Any]) -> List[str]:
    """Ends forks. If one cannot be ended now, its TTL ends it."""
    ended = []
    for fork in forks:
        with suppress(SandlingError):
            fork.close()
            ended.append(fork.id)
    return ended
