"""A model that says what it is told to, over HTTP, in the three dialects that SDKs speak."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Dict, List, Tuple, Union

#: A text, or calls of tools: name and arguments (an object, or text that need not be JSON).
Turn = Union[str, List[Tuple[str, Any]]]


class ModelServer:
    """Each request gets the next turn of the script. ``asked`` holds what was sent."""

    def __init__(self, script: List[Turn]) -> None:
        self.asked: List[Dict[str, Any]] = []
        turns = iter(script)
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                owner.asked.append(body)
                answer = DIALECTS[self.path.rsplit("/v1", 1)[-1].partition("?")[0]](next(turns), len(owner.asked))
                sent = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


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
        "usage": {"input_tokens": 1, "output_tokens": 1},
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
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
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
        "input_tokens": 1,
        "output_tokens": 1,
        "total_tokens": 2,
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


DIALECTS = {"/messages": messages, "/chat/completions": chat_completions, "/responses": responses}


def strings(value: Any) -> str:
    """All text in a request, for looking into it."""
    return json.dumps(value, ensure_ascii=False)
