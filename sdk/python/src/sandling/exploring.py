"""The data of an exploration: candidates, outcomes and the winner. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Generic, List, Mapping, Optional, Sequence, TypeVar, Union

from .errors import ExploreError

S = TypeVar("S")

MAX_BRANCHES = 16
TAIL = 4096
MARKER = "/tmp/.sandling-explore-marker"
MOST_FILES = 200
#: Directories in which to look for changed files. Missing ones are skipped.
ROOTS = "/app /work /workspace /root /home"


@dataclass
class Candidate:
    """One candidate: a command line, or a function that takes the fork."""

    label: str
    cmd: Optional[str] = None
    fn: Optional[Callable[[Any], Any]] = None
    timeout_s: float = 60.0
    env: Optional[Mapping[str, str]] = None
    #: A score that is known in advance.
    score: Optional[float] = None

    @staticmethod
    def shell(label: str, cmd: str, **more: Any) -> Candidate:
        return Candidate(label, cmd=cmd, **more)

    @staticmethod
    def call(label: str, fn: Callable[[Any], Any], **more: Any) -> Candidate:
        return Candidate(label, fn=fn, **more)


@dataclass
class BranchOutcome(Generic[S]):
    """The outcome of one candidate."""

    label: str
    sandbox_id: str
    sandbox: S = field(repr=False)
    ok: bool = False
    score: float = 0.0
    exit_code: Optional[int] = None
    #: The last 4 KiB.
    stdout_tail: str = ""
    stderr_tail: str = ""
    files_changed: List[str] = field(default_factory=list)
    duration_ms: int = 0
    #: The return value of the candidate's function.
    value: Any = None
    error: Optional[str] = None
    timed_out: bool = False


Select = Union[str, Callable[[List[BranchOutcome[S]]], BranchOutcome[S]]]


@dataclass
class ExploreResult(Generic[S]):
    """A finished exploration."""

    #: The sandbox of the winner. It still runs; end it when you are done.
    winner: S
    winner_outcome: BranchOutcome[S]
    #: All branches, the best first.
    outcomes: List[BranchOutcome[S]]
    tree_id: str = ""
    #: The sandboxes that were ended.
    reaped: List[str] = field(default_factory=list)
    reap_failures: Dict[str, str] = field(default_factory=dict)
    errors: List[str] = field(default_factory=list)

    def best(self, n: int = 1) -> List[BranchOutcome[S]]:
        return self.outcomes[:n]

    def table(self) -> str:
        """A table of all branches."""
        width = max([len("branch"), *(len(outcome.label) for outcome in self.outcomes)])
        lines = [f"  {'branch':<{width}}  {'score':>8}  {'exit':>5}  {'seconds':>8}  files"]
        for outcome in self.outcomes:
            mark = "*" if outcome is self.winner_outcome else " "
            code = "-" if outcome.exit_code is None else str(outcome.exit_code)
            seconds = outcome.duration_ms / 1000
            files = len(outcome.files_changed)
            lines.append(f"{mark} {outcome.label:<{width}}  {outcome.score:>8.2f}  {code:>5}  {seconds:>8.2f}  {files}")
        return "\n".join(lines)


def candidates_of(work: Sequence[Union[Candidate, str]]) -> List[Candidate]:
    """Checks the candidates. A string is a command line."""
    if not 1 <= len(work) <= MAX_BRANCHES:
        raise ExploreError(f"an exploration has 1 to {MAX_BRANCHES} candidates, not {len(work)}")
    candidates = [Candidate.shell(item, item) if isinstance(item, str) else item for item in work]
    for candidate in candidates:
        if (candidate.cmd is None) == (candidate.fn is None):
            raise ExploreError(f"candidate {candidate.label!r} needs a command or a function, and not both")
    return candidates


def check_select(select: Any) -> None:
    if not callable(select) and select not in ("max", "min"):
        raise ValueError(f"select must be 'max', 'min' or a function, not {select!r}")


def ranked(outcomes: Sequence[BranchOutcome[S]], select: Select[S]) -> List[BranchOutcome[S]]:
    """Sorts outcomes: the best first, then the faster."""
    sign = 1.0 if select == "min" else -1.0
    return sorted(outcomes, key=lambda outcome: (sign * outcome.score, outcome.duration_ms))


def pick(outcomes: List[BranchOutcome[S]], select: Select[S], require_success: bool) -> Optional[BranchOutcome[S]]:
    """The winner of sorted outcomes."""
    viable = [outcome for outcome in outcomes if outcome.ok or not require_success]
    if not viable or callable(select):
        return select(viable) if viable and callable(select) else None
    return viable[0]


def tail(text: str) -> str:
    return text.encode("utf-8", "replace")[-TAIL:].decode("utf-8", "replace")
