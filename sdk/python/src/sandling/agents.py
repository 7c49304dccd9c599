"""What an agent may use, and what came of a task. No I/O."""

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
#: The longest answer, if no budget says less.
ANSWER_TOKENS = 8192
#: So often the same calls with the same results are the end.
MOST_REPEATS = 6
MOST_EMPTY = 3

NO_KEY = "no model is known: set ANTHROPIC_API_KEY or OPENAI_API_KEY, or pass api= and client="

#: Ends in words, as the command line's transcripts have them.
WHY = {
    "answer": "done",
    "steps": "the budget of steps is used up",
    "tokens": "the budget of tokens is used up",
    "time": "the time is over",
    "money": "the budget of money is used up",
    "repeats": "the model did the same again and again",
    "empty": "the model says nothing",
}


class Exhausted(Exception):
    """A budget is used up, or would be. ``budget`` says which."""

    def __init__(self, budget: str) -> None:
        super().__init__(WHY[budget])
        self.budget = budget


@dataclass(frozen=True)
class Budget:
    """What one task may use. What is ``None`` is not bounded."""

    #: Requests to the model.
    steps: int = 50
    #: Seconds in all.
    seconds: float = 1800.0
    #: Tokens, read and written together.
    tokens: Optional[int] = None
    #: Dollars; needs ``prices``.
    cost: Optional[float] = None
    #: Dollars for a million tokens, read and written.
    prices: Optional[Tuple[float, float]] = None

    def __post_init__(self) -> None:
        if self.cost is not None and self.prices is None:
            raise ValueError("a budget of money needs prices=(IN, OUT), in dollars for a million tokens")

    def price(self, read: int, written: int) -> Optional[float]:
        if self.prices is None:
            return None
        return (read * self.prices[0] + written * self.prices[1]) / 1e6


@dataclass
class AgentResult:
    """What came of a task."""

    #: The last thing that the model said.
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
        """Whether the model said that it is done."""
        return self.ended_by == "answer"

    @property
    def why(self) -> str:
        """Why it ended, in words."""
        return WHY.get(self.ended_by, self.ended_by)


@dataclass(frozen=True)
class AgentEvent:
    """Something that happened while a model worked."""

    #: ``start``, ``text`` (a piece of what the model says), ``retry``, ``reply``, ``call``, ``result`` or ``end``; of
    #: several attempts also ``check`` and ``forks``.
    kind: str
    data: Dict[str, Any]

    @property
    def text(self) -> str:
        """Of ``text``: the piece. Of a ``reply``: all that the model said. Of a ``result``: what the model is told."""
        return str(self.data.get("text", ""))

    @property
    def result(self) -> Optional[AgentResult]:
        """Of an ``end``: what came of the task."""
        found = self.data.get("result")
        return found if isinstance(found, AgentResult) else None


@dataclass
class Attempt(Generic[S]):
    """One of several attempts at a task, and what came of it."""

    #: From 1.
    number: int
    sandbox: S
    result: AgentResult = field(default_factory=AgentResult)
    #: How the check ended; ``None`` if it was no command, or did not run.
    exit_code: Optional[int] = None
    passed: bool = False
    #: The number at the end of the check's output, or the one that the check gave.
    score: Optional[float] = None
    #: What broke the attempt, if something did.
    error: Optional[Exception] = None

    @property
    def rank(self) -> Tuple[bool, float, int]:
        """Better ones are greater: a pass, then the score, then fewer tokens."""
        tokens = self.result.input_tokens + self.result.output_tokens
        return self.passed, -math.inf if self.score is None else self.score, -tokens


@dataclass
class BestOf(Generic[S]):
    """All attempts at a task. The best one's sandbox still runs; end it, or use it in a ``with``."""

    best: Attempt[S]
    attempts: List[Attempt[S]]
    #: What did not go as it was asked for, such as forks that could not be made.
    errors: List[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether the best one passed the check."""
        return self.best.passed

    @property
    def sandbox(self) -> S:
        return self.best.sandbox

    @property
    def answer(self) -> str:
        return self.best.result.answer

    def table(self) -> str:
        """All attempts, for people."""
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
    """What all attempts have in common."""

    task: str
    attempts: int
    #: A command, or a function of the sandbox.
    check: Any
    check_seconds: float

    def told(self, number: int) -> str:
        judged_by = f" Afterwards it is judged by: {self.check}" if isinstance(self.check, str) else ""
        return (
            f"{self.task}\n\n(This is attempt {number} of {self.attempts}, each on its own; take the approach that you "
            f"think best.{judged_by})"
        )


def score_of(output: str) -> Optional[float]:
    """The number that ends the last line."""
    words = output.split()
    try:
        score = float(words[-1]) if words else math.nan
    except ValueError:
        return None
    return score if math.isfinite(score) else None


@dataclass
class Spent:
    """What was used so far."""

    budget: Budget
    started: float = field(default_factory=time.monotonic)
    steps: int = 0
    read: int = 0
    written: int = 0
    #: What the next request reads at least: what the last one read and wrote.
    known: int = 0
    #: What ``known`` was estimated to be: what a request is more than this was added since.
    estimated: int = 0

    def add(self, read: int, written: int, estimated: int) -> None:
        """An answer, and how much it and its request were estimated to be."""
        self.steps += 1
        self.read += read
        self.written += written
        self.known, self.estimated = read + written, estimated

    def lose(self, read: int, written: int) -> None:
        """What was used for an answer that never became whole."""
        self.read += read
        self.written += written

    @property
    def seconds_left(self) -> float:
        return self.started + self.budget.seconds - time.monotonic()

    def next_answer(self, size: int) -> int:
        """How many tokens the answer to a request of about ``size`` tokens may have.

        What the request reads is taken off first: what the last one read and wrote, as it was counted, and what came
        since.

        :raises Exhausted: there is nothing left.
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
    """A line of JSON for everything that happened, in a file that only its owner can read."""

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
            # Half a character is written as JSON writes it.
            file.write(text.encode("utf-8", "backslashreplace"))


def _as_object(arguments: Any) -> Any:
    """A call's arguments as the object that their text says; what says none stays as it is."""
    if not isinstance(arguments, str):
        return arguments
    try:
        found = json.loads(arguments, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return arguments
    return found if isinstance(found, dict) else arguments


def _refuse(constant: str) -> None:
    """``NaN`` and the infinities are no JSON."""
    raise ValueError(constant)
