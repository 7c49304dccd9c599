"""A model with a task and a sandbox, through the official SDKs of Anthropic and OpenAI."""

from __future__ import annotations

import functools
import os
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any, Callable, Dict, List, Optional, Union

from ..agents import (
    MOST_EMPTY,
    MOST_REPEATS,
    NO_KEY,
    SYSTEM,
    AgentEvent,
    AgentResult,
    Attempt,
    BestOf,
    Budget,
    Exhausted,
    Spent,
    Transcript,
    Trial,
    score_of,
)
from ..errors import ConfigError, SandlingError
from ..fields import refuse_other
from ..options import DEFAULT_TEMPLATE
from ..toolkit import ToolCall, ToolOutput
from ..tools import dialogues
from .colour import Source, run_all, settle
from .explore import end
from .model import AsyncModel
from .sandbox import AsyncSandbox
from .tools import AsyncSandboxTools

#: In addition to the time of the task.
_TTL_SLACK = 600
_EMPTY = "You said nothing. Call a tool, or answer if the task is done."
_CUT = "Your answer was cut off at the limit of its length. Go on."


class AsyncAgent:
    """An agent: the model proposes, the sandbox runs, the model sees the result, until it is done or out of budget.

    :param api: ``anthropic`` (Messages), ``chat`` (OpenAI's Chat Completions) or ``responses`` (OpenAI's Responses).
        By default the one whose key is in the environment.
    :param model: the name of the model; by default ``ANTHROPIC_MODEL`` or ``OPENAI_MODEL``.
    :param client: your client of the SDK; by default it is created from the environment, with its base URL.
    :param sandbox: where it works. By default each task gets a new sandbox, which always ends with the task.
    :param budget: what a task may use.
    :param command_timeout_seconds: the timeout of every command.
    :param transcript: a file that gets one line of JSON per event.
    :param streamed: whether answers arrive in pieces, as with :meth:`stream`; ``on_event`` then gets each piece.
    :param on_event: is called with ``(kind, data)`` for each event: ``start``, ``text``, ``retry``, ``reply``,
        ``call``, ``result``, ``check``, ``forks``, ``winner`` and ``end``.
    """

    def __init__(
        self,
        model: Optional[str] = None,
        *,
        api: Optional[str] = None,
        client: Any = None,
        sandbox: Optional[AsyncSandbox] = None,
        template: str = DEFAULT_TEMPLATE,
        budget: Optional[Budget] = None,
        command_timeout_seconds: float = 120.0,
        system: str = SYSTEM,
        transcript: Optional[str] = None,
        streamed: bool = False,
        on_event: Optional[Callable[[str, Any], Any]] = None,
    ) -> None:
        self._api = api or _api_of_environment()
        if self._api not in dialogues.DIALOGUES:
            raise ConfigError(f"there is no API {self._api!r}; there are {', '.join(dialogues.DIALOGUES)}")
        refuse_other(sandbox, AsyncSandbox, "Agent")
        variable = "ANTHROPIC_MODEL" if self._api == "anthropic" else "OPENAI_MODEL"
        named = model or os.environ.get(variable)
        if not named:
            raise ConfigError(f"no model is set; pass Agent(model=…) or set {variable}")
        self._model = named
        self._model_client = AsyncModel(self._api, client)
        self._sandbox = sandbox
        self._template = template
        self._budget = budget or Budget()
        self._command_timeout = command_timeout_seconds
        self._system = system
        self._transcript = Transcript(transcript)
        self._streamed = streamed
        self._on_event = on_event

    async def run(self, task: str) -> AgentResult:
        """Works on a task. Raises errors of the model's API and of the server; its own sandbox ends in any case."""
        if self._sandbox is not None:
            return await self._run(task, self._sandbox)
        async with await self._make_sandbox() as sandbox:
            return await self._run(task, sandbox)

    async def stream(self, task: str) -> Source[AgentEvent]:
        """Works on a task and yields its events, with text in pieces. The last event has the result."""
        if self._sandbox is not None:
            async for event in self._work(task, self._sandbox, pieces=True):
                yield event
            return
        async with await self._make_sandbox() as sandbox:
            async for event in self._work(task, sandbox, pieces=True):
                yield event

    async def best_of(
        self,
        attempts: int,
        task: str,
        *,
        check: Union[str, Callable[[AsyncSandbox], Any]],
        setup: Union[str, Callable[[AsyncSandbox], Any], None] = None,
        check_timeout_seconds: float = 600.0,
    ) -> BestOf[AsyncSandbox]:
        """Prepares one sandbox, forks it, makes an attempt in each fork in parallel, and keeps the winner's sandbox.

        :param check: scores an attempt. A command passes with 0; the number at the end of its output decides among
            equals. A function takes the fork and returns whether it passed, or a number: larger is better, and more
            than 0 is a pass.
        :param setup: runs before the forks: a command, or a function that takes the sandbox.
        :raises Exception: the error of the first attempt, if all failed.
        """
        trial = Trial(task, attempts, check, check_timeout_seconds)
        if self._sandbox is not None:
            return await self._race(self._sandbox, trial, setup)
        async with await self._make_sandbox() as sandbox:
            return await self._race(sandbox, trial, setup)

    async def _race(self, parent: AsyncSandbox, trial: Trial, setup: Any) -> BestOf[AsyncSandbox]:
        if isinstance(setup, str):
            await parent.exec(setup, timeout_seconds=trial.check_seconds, cwd="/workspace", check=True)
        elif setup is not None:
            await settle(setup(parent))
        forks = await parent.fork_tree(trial.attempts)
        if not forks:
            raise SandlingError("no fork could be created; the host may have no capacity for them")
        errors = []
        try:
            if len(forks) < trial.attempts:
                errors.append(f"{trial.attempts} forks were asked for and {len(forks)} made")
                await self._tell(AgentEvent("forks", {"wanted": trial.attempts, "made": len(forks)}))
                trial = replace(trial, attempts=len(forks))
            for fork in forks:
                await fork.set_ttl(int(self._budget.seconds + trial.check_seconds) + _TTL_SLACK)
            made = [Attempt(number, fork) for number, fork in enumerate(forks, 1)]
            steps = [functools.partial(self._attempt, one, trial) for one in made]
            await run_all(steps, len(steps))
            broken = [attempt.error for attempt in made if attempt.error is not None]
            if len(broken) == len(made):
                raise broken[0]
            best = max(made, key=lambda attempt: attempt.rank)
            await self._tell(AgentEvent("winner", {"attempt": best.number}))
        except BaseException:
            await end(forks)
            raise
        await end([fork for fork in forks if fork.id != best.sandbox.id])
        return BestOf(best, made, errors)

    async def _attempt(self, attempt: Attempt[AsyncSandbox], trial: Trial) -> None:
        # An error in one attempt does not stop the others.
        try:
            attempt.result = await self._run(trial.told(attempt.number), attempt.sandbox, attempt.number)
            await self._judge(attempt, trial)
        except Exception as error:
            attempt.error = error
        why = None if attempt.error is None else str(attempt.error)
        about = {"exit_code": attempt.exit_code, "passed": attempt.passed, "score": attempt.score, "error": why}
        await self._tell(AgentEvent("check", about), attempt.number)

    async def _judge(self, attempt: Attempt[AsyncSandbox], trial: Trial) -> None:
        if isinstance(trial.check, str):
            ran = await attempt.sandbox.exec(trial.check, timeout_seconds=trial.check_seconds, cwd="/workspace")
            attempt.exit_code, attempt.passed, attempt.score = ran.exit_code, ran.ok, score_of(ran.stdout)
            return
        judged = await settle(trial.check(attempt.sandbox))
        if judged is None or isinstance(judged, bool):
            attempt.passed = bool(judged)
        else:
            attempt.passed, attempt.score = judged > 0, float(judged)

    async def _make_sandbox(self) -> AsyncSandbox:
        return await AsyncSandbox.create(self._template, ttl_seconds=int(self._budget.seconds) + _TTL_SLACK)

    async def _run(self, task: str, sandbox: AsyncSandbox, attempt: Optional[int] = None) -> AgentResult:
        result: Optional[AgentResult] = None
        async for event in self._work(task, sandbox, pieces=self._streamed, attempt=attempt):
            result = event.result or result
        assert result is not None, "the last event has the result"
        return result

    async def _work(
        self, task: str, sandbox: AsyncSandbox, *, pieces: bool, attempt: Optional[int] = None
    ) -> Source[AgentEvent]:
        start = AgentEvent("start", {"task": task, "model": self._model, "sandbox": sandbox.id})
        await self._tell(start, attempt)
        yield start
        tools = AsyncSandboxTools(sandbox, timeout_seconds=self._command_timeout)
        try:
            async for event in self._events(task, tools, pieces):
                await self._tell(event, attempt)
                yield event
        finally:
            # The sandbox continues to run and has room for a limited number of interpreters.
            if sandbox is self._sandbox:
                with suppress(SandlingError):
                    await tools.close()

    async def _events(self, task: str, tools: AsyncSandboxTools, pieces: bool) -> Source[AgentEvent]:
        older_limit = self._api == "chat" and not self._model_client.is_openai
        known = dialogues.DIALOGUES[self._api]
        dialogue = known(self._model, self._system, task, tools.specs, older_limit=older_limit)
        spent = Spent(self._budget)
        answer, last, repeats, empty = "", None, 0, 0
        ended_by: Optional[str] = None
        while ended_by is None:
            heard: List[dialogues.Reply] = []
            try:
                async for event in self._model_client.ask(dialogue, spent, pieces=pieces, heard=heard):
                    yield event
            except Exhausted as over:
                ended_by = over.budget
                break
            reply = heard[0]
            spent.add(reply.read, reply.written, dialogue.size())
            answer = reply.text or answer
            tokens = {"input_tokens": reply.read, "output_tokens": reply.written}
            yield AgentEvent("reply", {"step": spent.steps, "text": reply.text, "calls": len(reply.calls), **tokens})
            if not reply.calls:
                hint = _CUT if reply.is_cut else None if reply.text.strip() else _EMPTY
                if hint is None:
                    ended_by = "answer"
                    break
                empty += 0 if reply.text.strip() else 1
                dialogue.say(hint)
                ended_by = "empty" if empty == MOST_EMPTY else None
                continue
            answers = []
            for call in reply.calls:
                yield AgentEvent("call", {"id": call.id, "name": call.name, "arguments": call.arguments})
                started = time.monotonic()
                output = await self._call(tools, call, spent)
                yield AgentEvent("result", _about(call, output, time.monotonic() - started))
                answers.append((call, output))
            dialogue.answer(answers)
            this = [(call.name, str(call.arguments), output.text) for call, output in answers]
            repeats = repeats + 1 if this == last else 1
            last = this
            ended_by = "repeats" if repeats == MOST_REPEATS else None
        result = spent.result(answer, ended_by)
        yield AgentEvent("end", {"why": result.why, **vars(result), "result": result})

    async def _call(self, tools: AsyncSandboxTools, call: ToolCall, spent: Spent) -> ToolOutput:
        tools.timeout_seconds = max(min(self._command_timeout, spent.seconds_left), 0.001)
        return await tools.call(call.name, call.arguments)

    async def _tell(self, event: AgentEvent, attempt: Optional[int] = None) -> None:
        about = {name: value for name, value in event.data.items() if name != "result"}
        if attempt is not None:
            about["attempt"] = attempt
        if event.kind != "text":
            self._transcript.write(event.kind, **about)
        if self._on_event is not None:
            await settle(self._on_event(event.kind, about))


def _about(call: ToolCall, output: ToolOutput, seconds: float) -> Dict[str, Any]:
    told = {"text": output.text, "images": len(output.images), "is_error": output.is_error}
    return {"id": call.id, **told, "exit_code": output.exit_code, "seconds": round(seconds, 3)}


def _api_of_environment() -> str:
    keys: List[str] = ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY"]
    found = next((key for key in keys if os.environ.get(key)), None)
    if found is None:
        raise ConfigError(NO_KEY)
    return "chat" if found.startswith("OPENAI") else "anthropic"
