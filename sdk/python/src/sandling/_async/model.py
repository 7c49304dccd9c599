"""Asks a model through Anthropic's and OpenAI's SDKs, and retries until it answers or the time is over."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from ..agents import NO_KEY, AgentEvent, Exhausted, Spent
from ..errors import ConfigError
from ..mending import mended
from ..tools.dialogues import Dialogue, Reply, estimated
from ..tools.patience import LONGEST_WAIT, TRIES, is_passing, retry_after, was_read
from ..tools.streams import PIECES, heard_of
from .colour import Source, each_within, sleep, within


class AsyncModel:
    """A model behind one of the three APIs. ``client`` is a client of the SDK, or created from the environment."""

    def __init__(self, api: str, client: Any = None) -> None:
        self.api = api
        made = client if client is not None else _client_of(api)
        # The SDKs wait as long as the server asks, beyond the time budget. So retries happen here.
        self._client = made.with_options(max_retries=0) if hasattr(made, "with_options") else made

    @property
    def is_openai(self) -> bool:
        """Other servers know only the older name of the output limit."""
        return "api.openai.com" in str(getattr(self._client, "base_url", ""))

    async def ask(self, dialogue: Dialogue, spent: Spent, *, pieces: bool, heard: List[Reply]) -> Source[AgentEvent]:
        """Puts the reply into ``heard``, and yields its pieces and each retry before that.

        A request has no effects, so a failed one is sent again. Its cost is counted.

        :raises Exhausted: a budget does not allow it, or there is no answer in the remaining time.
        """
        wait = 0.5
        for left in reversed(range(TRIES)):
            request = dialogue.request(spent.next_answer(dialogue.size()))
            error: Optional[Exception] = None
            answers: List[Any] = []
            came: List[str] = []
            try:
                async for event in self._once(request, spent, pieces, answers, came):
                    yield event
                heard.append(dialogue.read(answers[0]))
                return
            except Exception as raised:
                if was_read(raised):
                    spent.lose(dialogue.size(), estimated("".join(came)))
                if spent.seconds_left <= 0 or isinstance(raised, TimeoutError):
                    raise Exhausted("time") from raised
                if left == 0 or not is_passing(raised):
                    raise
                error = raised
            after = retry_after(error)
            after = wait if after is None else after
            if after >= spent.seconds_left:
                raise Exhausted("time") from error
            yield AgentEvent("retry", {"why": str(error) or type(error).__name__, "after_seconds": after})
            await sleep(after)
            wait = min(wait * 2, LONGEST_WAIT)

    async def _once(
        self, request: Dict[str, Any], spent: Spent, pieces: bool, answers: List[Any], came: List[str]
    ) -> Source[AgentEvent]:
        """One attempt. ``answers`` gets the answer, and ``came`` what arrives of it, also if it stays incomplete."""
        if not pieces:
            answers.append(await within(lambda: self._create(request, spent), spent.seconds_left))
            return
        answer = PIECES[self.api]()
        asked = {**request, **answer.ASKED}
        events = await within(lambda: self._create(asked, spent), spent.seconds_left)
        async for event in each_within(events, lambda: spent.seconds_left):
            came.append(heard_of(event))
            text = answer.take(event)
            if text:
                yield AgentEvent("text", {"text": mended(text)})
        answers.append(answer.whole())

    async def _create(self, request: Dict[str, Any], spent: Spent) -> Any:
        timeout = max(spent.seconds_left, 0.001)
        if self.api == "anthropic":
            return await self._client.messages.create(**request, timeout=timeout)
        if self.api == "chat":
            return await self._client.chat.completions.create(**request, timeout=timeout)
        return await self._client.responses.create(**request, timeout=timeout)


def _client_of(api: str) -> Any:
    if api == "anthropic":
        from anthropic import AsyncAnthropic

        made = AsyncAnthropic()
        # There are other ways to authenticate, such as a profile or custom headers.
        known = [made.api_key, made.auth_token, getattr(made, "credentials", None)]
        if not any(known) and not {"authorization", "x-api-key"} & {name.lower() for name in made.default_headers}:
            raise ConfigError(NO_KEY)
        return made
    from openai import AsyncOpenAI, OpenAIError

    try:
        return AsyncOpenAI()
    except OpenAIError as error:
        raise ConfigError(NO_KEY) from error
