"""Budgets and results of an agent's task. No I/O."""

from __future__ import annotations

import json
import math
import os
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Dict, Generic, List, Optional, Tuple, TypeVar

S = TypeVar("S")

SYSTEM = (
    "You solve a task with a disposable computer: a virtual machine of your own, with the working directory "
    "/workspace. Use the tools to look around, run code and commands, and change files there. You are root; nothing "
    "in it is precious, and there may be no network. Check what you did by running it. When the task is done, answer "
    "in a few sentences, without calling a tool."
)
#: The longest answer, if no budget is smaller.
ANSWER_TOKENS = 8192
#: The task ends after this many identical calls with identical results.
MOST_REPEATS = 6
MOST_EMPTY = 3

NO_KEY = "no model is known: set ANTHROPIC_API_KEY or OPENAI_API_KEY, or pass api= and client="

#: Why a task ended. ``sandling agent`` uses the same sentences; ``conformance/agent/end_reasons.json`` lists them.
WHY = {
    "answer": "done",
    "steps": "the step budget is used up",
    "tokens": "the token budget is used up",
    "time": "the time limit was reached",
    "money": "the cost budget is used up",
    "repeats": "the model repeated the same call",
    "empty": "the model returned empty answers",
}


class Exhausted(Exception):
    """A budget is used up, or the next request would exceed it. ``budget`` says which."""

    def __init__(self, budget: str) -> None:
        super().__init__(WHY[budget])
        self.budget = budget


@dataclass(frozen=True)
class Budget:
    """What one task may use. ``None`` means no limit."""

    #: Requests to the model.
    steps: int = 50
    #: Total seconds.
    seconds: float = 1800.0
    #: Input and output tokens together.
    tokens: Optional[int] = None
    #: Dollars; needs ``prices``.
    cost: Optional[float] = None
    #: Dollars for a million input and output tokens.
    prices: Optional[Tuple[float, float]] = None

    def __post_init__(self) -> None:
        if self.cost is not None and self.prices is None:
            raise ValueError("a cost budget needs prices=(IN, OUT), in dollars per million tokens")

    def price(self, read: int, written: int) -> Optional[float]:
        if self.prices is None:
            return None
        return (read * self.prices[0] + written * self.prices[1]) / 1e6


@dataclass
class AgentResult:
    """The result of a task."""

    #: The last message of the model.
    answer: str = ""
    #: ``answer``, ``steps``, ``tokens``, ``time``, ``money``, ``repeats`` or ``empty``.
    ended_by: str = ""
    steps: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    #: In dollars, if prices are known.
    cost: Optional[float] = None
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the model finished the task with an answer."""
        return self.ended_by == "answer"

    @property
    def why(self) -> str:
        """Why the task ended, in words."""
        return WHY.get(self.ended_by, self.ended_by)


@dataclass(frozen=True)
class AgentEvent:
    """Something that happened while a model worked."""

    #: ``start``, ``text`` (a piece of an answer), ``retry``, ``reply``, ``call``, ``result`` or ``end``. With several
    #: attempts also ``check`` and ``forks``.
    kind: str
    data: Dict[str, Any]

    @property
    def text(self) -> str:
        """For ``text``: the piece. For ``reply``: the whole answer. For ``result``: what the model sees."""
        return str(self.data.get("text", ""))

    @property
    def result(self) -> Optional[AgentResult]:
        """For ``end``: the result of the task."""
        found = self.data.get("result")
        return found if isinstance(found, AgentResult) else None


@dataclass
class Attempt(Generic[S]):
    """One of several attempts at a task, and its result."""

    #: From 1.
    number: int
    sandbox: S
    result: AgentResult = field(default_factory=AgentResult)
    #: The exit code of the check. ``None`` if it was not a command or did not run.
    exit_code: Optional[int] = None
    passed: bool = False
    #: The number at the end of the check's output, or the number that the check returned.
    score: Optional[float] = None
    #: The error that ended the attempt, if there was one.
    error: Optional[Exception] = None

    @property
    def rank(self) -> Tuple[bool, float, int]:
        """Sorts attempts: better ones are greater. A pass counts first, then the score, then fewer tokens."""
        tokens = self.result.input_tokens + self.result.output_tokens
        return self.passed, -math.inf if self.score is None else self.score, -tokens


@dataclass
class BestOf(Generic[S]):
    """All attempts at a task. The winner's sandbox still runs: end it, or use it in a ``with``."""

    best: Attempt[S]
    attempts: List[Attempt[S]]
    #: What differs from the request, such as fewer forks.
    errors: List[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether the winner passed the check."""
        return self.best.passed

    @property
    def sandbox(self) -> S:
        return self.best.sandbox

    @property
    def answer(self) -> str:
        return self.best.result.answer

    def table(self) -> str:
        """A table of all attempts."""
        lines = ["ATTEMPT  CHECK   SCORE     STEPS  TOKENS  SECONDS"]
        for attempt in self.attempts:
            result = attempt.result
            mark = f"{attempt.number} ◀" if attempt is self.best else f"{attempt.number}"
            score = "" if attempt.score is None else f"{attempt.score:g}"
            tokens = result.input_tokens + result.output_tokens
            check = "passed" if attempt.passed else "failed"
            lines.append(f"{mark:<7}  {check}  {score:<8}  {result.steps:<5}  {tokens:<6}  {result.seconds:.1f}")
        return "\n".join([*lines, *self.errors])


@dataclass(frozen=True)
class Trial:
    """The settings that all attempts share."""

    task: str
    attempts: int
    #: A command, or a function that takes the sandbox.
    check: Any
    check_seconds: float

    def told(self, number: int) -> str:
        judged_by = f" Afterwards it is judged by: {self.check}" if isinstance(self.check, str) else ""
        return (
            f"{self.task}\n\n(This is attempt {number} of {self.attempts}, each on its own; take the approach that you "
            f"think best.{judged_by})"
        )


def score_of(output: str) -> Optional[float]:
    """The number at the end of the last line."""
    words = output.split()
    try:
        score = float(words[-1]) if words else math.nan
    except ValueError:
        return None
    return score if math.isfinite(score) else None


@dataclass
class Spent:
    """What a task has used so far."""

    budget: Budget
    started: float = field(default_factory=time.monotonic)
    steps: int = 0
    read: int = 0
    written: int = 0
    #: Tokens that the next request reads at least: input and output of the last one.
    known: int = 0
    #: The estimate for ``known``. If a request's estimate is larger, the difference was added since.
    estimated: int = 0

    def add(self, read: int, written: int, estimated: int) -> None:
        """Adds an answer, and the estimated size of it and its request."""
        self.steps += 1
        self.read += read
        self.written += written
        self.known, self.estimated = read + written, estimated

    def lose(self, read: int, written: int) -> None:
        """Adds what an incomplete answer used."""
        self.read += read
        self.written += written

    @property
    def seconds_left(self) -> float:
        return self.started + self.budget.seconds - time.monotonic()

    def next_answer(self, size: int) -> int:
        """The output limit for a request of about ``size`` tokens.

        The input of the request is subtracted first: the counted tokens of the last request and answer, and an estimate
        of what was added since.

        :raises Exhausted: nothing is left.
        """
        budget = self.budget
        if self.steps >= budget.steps:
            raise Exhausted("steps")
        if self.seconds_left <= 0:
            raise Exhausted("time")
        read = self.read + self.known + max(0, size - self.estimated)
        longest = ANSWER_TOKENS
        if budget.tokens is not None:
            longest = min(longest, budget.tokens - read - self.written)
            if longest < 1:
                raise Exhausted("tokens")
        if budget.cost is not None and budget.prices is not None:
            left = budget.cost - (budget.price(read, self.written) or 0.0)
            affordable = left / budget.prices[1] * 1e6 if budget.prices[1] else ANSWER_TOKENS
            if left <= 0 or affordable < 1:
                raise Exhausted("money")
            longest = int(min(longest, affordable))
        return longest

    def result(self, answer: str, ended_by: str) -> AgentResult:
        return AgentResult(
            answer,
            ended_by,
            self.steps,
            self.read,
            self.written,
            self.budget.price(self.read, self.written),
            time.monotonic() - self.started,
        )


class Transcript:
    """Writes one line of JSON per event, to a file that only its owner can read."""

    def __init__(self, path: Optional[str]) -> None:
        self._path = path
        self._lock = threading.Lock()

    def write(self, kind: str, **about: Any) -> None:
        if self._path is None:
            return
        line: Dict[str, Any] = {"time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"), "type": kind}
        if "arguments" in about:
            about["arguments"] = _as_object(about["arguments"])
        text = json.dumps({**line, **about}, ensure_ascii=False, default=str) + "\n"
        with self._lock, os.fdopen(os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "wb") as file:
            # JSON can escape lone surrogates; UTF-8 cannot encode them.
            file.write(text.encode("utf-8", "backslashreplace"))


def _as_object(arguments: Any) -> Any:
    """Parses a call's arguments. Text that is not a JSON object stays as it is."""
    if not isinstance(arguments, str):
        return arguments
    try:
        found = json.loads(arguments, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return arguments
    return found if isinstance(found, dict) else arguments


def _refuse(constant: str) -> None:
    """``NaN`` and the infinities are not JSON."""
    raise ValueError(constant)
