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

#: Beyond the task's own time.
_TTL_SLACK = 600
_EMPTY = "You said nothing. Call a tool, or answer if the task is done."
_CUT = "Your answer was cut off at the limit of its length. Go on."


class AsyncAgent:
    """The loop: the model proposes, the sandbox runs, the model is told, until it is done or a budget is used up.

    :param api: ``anthropic`` (Messages), ``chat`` (OpenAI's Chat Completions) or ``responses`` (OpenAI's Responses).
        Without it, what the environment has a key for.
    :param model: its name; else ``ANTHROPIC_MODEL`` or ``OPENAI_MODEL``.
    :param client: the SDK's own client, if you have one; else it is made from the environment, base URL and all.
    :param sandbox: where it works. Without one, each task gets a fresh one, which is always ended.
    :param budget: what a task may use.
    :param command_timeout_seconds: the deadline of every command.
    :param transcript: a file that gets a line of JSON for everything that happens.
    :param streamed: whether answers come piece by piece, as with :meth:`stream`; then ``on_event`` is told of each.
    :param on_event: is told ``(kind, data)`` as things happen: ``start``, ``text``, ``retry``, ``reply``, ``call``,
        ``result``, ``check``, ``forks`` and ``end``.
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
            raise ConfigError(f"say which model to use: Agent(model) or {variable}")
        self._model = named
        self._asked = AsyncModel(self._api, client)
        self._sandbox = sandbox
        self._template = template
        self._budget = budget or Budget()
        self._command_timeout = command_timeout_seconds
        self._system = system
        self._transcript = Transcript(transcript)
        self._streamed = streamed
        self._on_event = on_event

    async def run(self, task: str) -> AgentResult:
        """Works on a task. Errors of the model's API and of the server are raised; a sandbox of its own ends anyway."""
        if self._sandbox is not None:
            return await self._run(task, self._sandbox)
        async with await self._make_sandbox() as sandbox:
            return await self._run(task, sandbox)

    async def stream(self, task: str) -> Source[AgentEvent]:
        """The same, told as it happens: an iterator of events, text piece by piece. The last one has the result."""
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
        """Warms one sandbox, forks it, makes an attempt in each fork, side by side, and keeps the best one's.

        :param check: what an attempt is judged by: a command that passes with 0, where a number at the end of its
            output counts among equals; or a function of the fork that gives whether it passed, or a number, where
            more is better and more than 0 is a pass.
        :param setup: is done before the forks: a command, or a function of the sandbox.
        :raises Exception: whatever broke the first attempt, if all broke.
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
            raise SandlingError("none of the forks could be made; there may be no room for them")
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
        except BaseException:
            await end(forks)
            raise
        await end([fork for fork in forks if fork.id != best.sandbox.id])
        return BestOf(best, made, errors)

    async def _attempt(self, attempt: Attempt[AsyncSandbox], trial: Trial) -> None:
        # What breaks one attempt does not break the others.
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
            # A sandbox that goes on has room for so many live interpreters.
            if sandbox is self._sandbox:
                with suppress(SandlingError):
                    await tools.close()

    async def _events(self, task: str, tools: AsyncSandboxTools, pieces: bool) -> Source[AgentEvent]:
        older_limit = self._api == "chat" and not self._asked.is_openai
        known = dialogues.DIALOGUES[self._api]
        dialogue = known(self._model, self._system, task, tools.specs, older_limit=older_limit)
        spent = Spent(self._budget)
        answer, last, repeats, empty = "", None, 0, 0
        ended_by: Optional[str] = None
        while ended_by is None:
            heard: List[dialogues.Reply] = []
            try:
                async for event in self._asked.ask(dialogue, spent, pieces=pieces, heard=heard):
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
