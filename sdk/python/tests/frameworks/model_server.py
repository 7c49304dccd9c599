"""A scripted model over HTTP, in the three APIs of the SDKs, with and without streaming.

It can also misbehave: refuse with a status, hang, fail, or drop the connection during an answer.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union


class Refusal(NamedTuple):
    """An error answer."""

    status: int
    message: str = "no"
    headers: Tuple[Tuple[str, str], ...] = (("retry-after", "0"),)


class Drop(NamedTuple):
    """Half an answer, then a dropped connection."""

    text: str = "I was about to say"


class Hang(NamedTuple):
    """No answer; with streaming, only keep-alive events."""

    seconds: float = 60.0


class Cut(NamedTuple):
    """An answer that reached the output limit."""

    text: str


class Uncounted(NamedTuple):
    """An answer without token counts."""

    turn: Any


class Counted(NamedTuple):
    """An answer with input and output token counts."""

    turn: Any
    read: int
    written: int = 5


class Failed(NamedTuple):
    """A failure that the server reports during an answer. Only the Responses API has an event for it."""

    message: str = "no luck today"


class Strange(NamedTuple):
    """A successful answer with an unexpected body; text if it is not JSON."""

    body: Any


#: A text, or tool calls with name and arguments (an object, or text that may not be JSON), or one of the classes above.
Turn = Union[str, List[Tuple[str, Any]], Refusal, Drop, Hang, Cut, Uncounted, Counted, Failed, Strange]
#: Chooses the answer to a request by its content and its number.
Script = Union[List[Turn], Callable[[Dict[str, Any], int], Turn]]


class ModelServer:
    """Each request gets the next turn of the script. ``requests`` has the requests, ``keys`` their API keys."""

    def __init__(
        self, script: Script, address: Tuple[str, int] = ("127.0.0.1", 0), tls: Optional[ssl.SSLContext] = None
    ) -> None:
        self.requests: List[Dict[str, Any]] = []
        self.keys: List[str] = []
        self.closing = threading.Event()
        turns = iter([] if callable(script) else script)
        lock = threading.Lock()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with lock:
                    owner.requests.append(body)
                    owner.keys.append(self.headers.get("x-api-key") or self.headers.get("authorization") or "")
                    number = len(owner.requests)
                    turn = script(body, number) if callable(script) else next(turns)
                dialect = self.path.rsplit("/v1", 1)[-1].partition("?")[0]
                if isinstance(turn, Refusal):
                    self.refuse(turn)
                elif isinstance(turn, Strange):
                    self.strange(turn)
                elif isinstance(turn, Hang):
                    self.hang(turn, bool(body.get("stream")))
                elif body.get("stream"):
                    self.stream(dialect, turn, number)
                elif isinstance(turn, Drop):
                    self.drop(b'{"id": "half')
                else:
                    self.whole(200, answer_of(dialect, turn, number))

            def hang(self, turn: Hang, streamed: bool) -> None:
                self.send_response(200)
                self.send_header("content-type", "text/event-stream" if streamed else "application/json")
                self.send_header("connection", "close")
                self.end_headers()
                self.close_connection = True
                until = time.monotonic() + turn.seconds
                # A reader whose timeout restarts with each byte would wait forever.
                while time.monotonic() < until and not owner.closing.wait(0.2):
                    try:
                        self.wfile.write(b": ping\n\n" if streamed else b" ")
                        self.wfile.flush()
                    except OSError:
                        return

            def whole(self, status: int, answer: Any, headers: Tuple[Tuple[str, str], ...] = ()) -> None:
                sent = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(sent)))
                for name, value in headers:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(sent)

            def strange(self, turn: Strange) -> None:
                sent = turn.body if isinstance(turn.body, str) else json.dumps(turn.body)
                self.send_response(200)
                self.send_header("content-type", "text/html" if sent is turn.body else "application/json")
                self.send_header("content-length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent.encode())

            def refuse(self, turn: Refusal) -> None:
                error = {"type": "error", "error": {"type": "refused", "message": turn.message}}
                self.whole(turn.status, error, turn.headers)

            def drop(self, sent: bytes) -> None:
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", "100000")
                self.end_headers()
                self.wfile.write(sent)
                self.close_connection = True

            def stream(self, dialect: str, turn: Any, number: int) -> None:
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                dropped = isinstance(turn, Drop)
                events = list(STREAMS[dialect](answer_of(dialect, turn.text if dropped else turn, number)))
                for event in events[: len(events) // 2 if dropped else None]:
                    self.wfile.write(event.encode())
                    self.wfile.flush()
                self.close_connection = True

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(address, Handler)
        if tls is not None:
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True)
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def close(self) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()


def answer_of(dialect: str, turn: Any, number: int) -> Dict[str, Any]:
    """The complete answer, and its special behavior."""
    if isinstance(turn, (Uncounted, Counted)):
        answer = answer_of(dialect, turn.turn, number)
        names = ("prompt", "completion") if dialect == "/chat/completions" else ("input", "output")
        counted = {f"{name}_tokens": count for name, count in zip(names, turn[1:])}
        return {**answer, "usage": {**answer["usage"], **counted} if counted else None}
    if isinstance(turn, Failed):
        error = {"code": "server_error", "message": turn.message}
        return {**responses("", number), "status": "failed", "error": error, "output": []}
    if not isinstance(turn, Cut):
        return DIALECTS[dialect](turn, number)
    answer = DIALECTS[dialect](turn.text, number)
    if dialect == "/messages":
        return {**answer, "stop_reason": "max_tokens"}
    if dialect == "/chat/completions":
        return {**answer, "choices": [{**answer["choices"][0], "finish_reason": "length"}]}
    return {**answer, "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}


def _text_of(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def messages(turn: Turn, number: int) -> Dict[str, Any]:
    """Anthropic's Messages API."""
    if isinstance(turn, str):
        content: List[Dict[str, Any]] = [{"type": "text", "text": turn}]
    else:
        content = [
            {"type": "tool_use", "id": f"call_{number}_{index}", "name": name, "input": arguments}
            for index, (name, arguments) in enumerate(turn)
        ]
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": content,
        "stop_reason": "end_turn" if isinstance(turn, str) else "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }


def chat_completions(turn: Turn, number: int) -> Dict[str, Any]:
    """OpenAI's Chat Completions API."""
    message: Dict[str, Any] = {"role": "assistant", "content": turn if isinstance(turn, str) else None}
    if not isinstance(turn, str):
        message["tool_calls"] = [
            {
                "id": f"call_{number}_{index}",
                "type": "function",
                "function": {"name": name, "arguments": _text_of(arguments)},
            }
            for index, (name, arguments) in enumerate(turn)
        ]
    reason = "stop" if isinstance(turn, str) else "tool_calls"
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1,
        "model": "scripted",
        "choices": [{"index": 0, "message": message, "finish_reason": reason, "logprobs": None}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }


def responses(turn: Turn, number: int) -> Dict[str, Any]:
    """OpenAI's Responses API."""
    if isinstance(turn, str):
        said = {"type": "output_text", "text": turn, "annotations": []}
        output: List[Dict[str, Any]] = [
            {"type": "message", "id": f"m_{number}", "role": "assistant", "status": "completed", "content": [said]}
        ]
    else:
        output = [
            {
                "type": "function_call",
                "id": f"fc_{number}_{index}",
                "call_id": f"call_{number}_{index}",
                "name": name,
                "arguments": _text_of(arguments),
                "status": "completed",
            }
            for index, (name, arguments) in enumerate(turn)
        ]
    usage = {
        "input_tokens": 10,
        "output_tokens": 5,
        "total_tokens": 15,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "scripted",
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage,
    }


def _event(data: Any, name: str = "") -> str:
    text = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {name}\n" if name else "") + f"data: {text}\n\n"


def _halves(text: str) -> List[str]:
    return [text[: len(text) // 2], text[len(text) // 2 :]]


def messages_stream(message: Dict[str, Any]) -> Iterator[str]:
    def event(kind: str, **data: Any) -> str:
        return _event({"type": kind, **data}, kind)

    usage = message["usage"] or {"input_tokens": 0, "output_tokens": 0}
    opening = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 0}}
    yield event("message_start", message=opening)
    yield event("ping")
    for index, block in enumerate(message["content"]):
        if block["type"] == "text":
            yield event("content_block_start", index=index, content_block={"type": "text", "text": ""})
            deltas = [{"type": "text_delta", "text": half} for half in _halves(block["text"])]
        else:
            yield event("content_block_start", index=index, content_block={**block, "input": {}})
            halves = _halves(_text_of(block["input"]))
            deltas = [{"type": "input_json_delta", "partial_json": half} for half in halves]
        for delta in deltas:
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    ending = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield event("message_delta", delta=ending, usage={"output_tokens": usage["output_tokens"]})
    yield event("message_stop")


def chat_stream(completion: Dict[str, Any]) -> Iterator[str]:
    head = {"id": completion["id"], "object": "chat.completion.chunk", "created": 1, "model": "scripted"}

    def chunk(delta: Dict[str, Any], reason: Any = None) -> str:
        return _event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})

    message = completion["choices"][0]["message"]
    yield chunk({"role": "assistant", "content": ""})
    for half in _halves(message["content"] or ""):
        yield chunk({"content": half})
    for index, call in enumerate(message.get("tool_calls", [])):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        opening = {"id": call["id"], "type": "function", "function": {"name": name, "arguments": ""}}
        yield chunk({"tool_calls": [{"index": index, **opening}]})
        for half in _halves(arguments):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": half}}]})
    yield chunk({}, completion["choices"][0]["finish_reason"])
    if completion["usage"]:
        yield _event({**head, "choices": [], "usage": completion["usage"]})
    yield _event("[DONE]")


def responses_stream(response: Dict[str, Any]) -> Iterator[str]:
    def event(kind: str, **data: Any) -> str:
        return _event({"type": kind, **data}, kind)

    yield event("response.created", response={**response, "status": "in_progress", "output": []})
    for index, item in enumerate(response["output"]):
        yield event("response.output_item.added", output_index=index, item=item)
        for part in item.get("content", []):
            for half in _halves(part["text"]):
                yield event("response.output_text.delta", output_index=index, item_id=item["id"], delta=half)
        yield event("response.output_item.done", output_index=index, item=item)
    yield event(f"response.{response['status']}", response=response)


STREAMS = {"/messages": messages_stream, "/chat/completions": chat_stream, "/responses": responses_stream}
DIALECTS = {"/messages": messages, "/chat/completions": chat_completions, "/responses": responses}


def strings(value: Any) -> str:
    """All text in a request."""
    return json.dumps(value, ensure_ascii=False)
