"""A scripted server that records its requests, for behavior that a real server cannot be made to show."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple, Union


@dataclass
class Request:
    method: str
    path: str
    headers: Dict[str, str]
    body: Any


@dataclass
class Answer:
    status: int = 200
    body: Any = None
    headers: Dict[str, str] = field(default_factory=dict)
    #: Close the connection instead of answering.
    hang_up: bool = False
    #: Close the connection before the end of the body.
    breaks_off: bool = False
    #: Send the body repeatedly.
    endless: bool = False


Route = Tuple[str, str]
Script = Union[Answer, List[Answer], Callable[[Request], Answer]]


class FakeServer:
    """``answers`` maps a method and path (``*`` for any) to an answer, a list of answers, or a function."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        self.answers: Dict[Route, Script] = {}
        self.requests: List[Request] = []
        self._connections: List[socket.socket] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                owner._connections.append(self.connection)

            def respond(self) -> None:
                sent = b"".join(self.pieces())
                is_json = "json" in self.headers.get("content-type", "")
                body = (json.loads(sent) if is_json else sent) if sent else None
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Request(self.command, self.path, headers, body)
                owner.requests.append(request)
                self.give(owner.take(request))

            def pieces(self) -> Iterator[bytes]:
                if "chunked" not in self.headers.get("transfer-encoding", ""):
                    yield self.rfile.read(int(self.headers.get("content-length") or 0))
                    return
                while size := int(self.rfile.readline(), 16):
                    yield self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()

            def give(self, answer: Answer) -> None:
                if answer.hang_up:
                    self.close_connection = True
                    return
                raw = isinstance(answer.body, bytes)
                body = answer.body if raw else b"" if answer.body is None else json.dumps(answer.body).encode()
                self.send_response(answer.status)
                kind = "application/octet-stream" if raw else "application/json"
                for name, value in {"x-request-id": "abc123", "content-type": kind, **answer.headers}.items():
                    self.send_header(name, value)
                if answer.endless:
                    self.send_header("transfer-encoding", "chunked")
                    self.end_headers()
                    self.repeat(body)
                    return
                self.send_header("content-length", str(len(body) + answer.breaks_off))
                self.end_headers()
                self.wfile.write(body)
                self.close_connection = self.close_connection or answer.breaks_off

            def repeat(self, body: bytes) -> None:
                self.close_connection = True
                with contextlib.suppress(OSError):
                    while True:
                        self.wfile.write(b"%x\r\n%b\r\n" % (len(body), body))

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = respond

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer((address, 0), Handler)
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        host, port = self._http.server_address[:2]
        return f"http://{host!s}:{port}"

    def take(self, request: Request) -> Answer:
        script: Optional[Script] = self.answers.get((request.method, request.path)) or self.answers.get(
            (request.method, "*")
        )
        if callable(script):
            return script(request)
        if isinstance(script, list):
            script = script.pop(0) if script else None
        return script or Answer(
            404, {"error": f"no answer for {request.method} {request.path}", "code": "no_such_route"}
        )

    def close(self) -> None:
        """Closes the server and its connections, like a process that ends."""
        self._http.shutdown()
        self._http.server_close()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
