"""A real S3 API server (moto) on loopback, and a proxy before it that fails when a test says so."""

from __future__ import annotations

import http.client
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self
from urllib.parse import urlsplit

import pytest

from evertrain.checkpoint.storage.s3_calls import Patience

BUCKET: Final = "checkpoints"
ACCESS_KEY: Final = "AKIDFORTESTS"
SECRET: Final = "a-secret-that-is-in-no-text"

_SERVE = """
import sys
from moto.moto_server.threaded_moto_server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


class S3Server:
    """One process; ends with :meth:`close`, or with the test's own process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


def use_endpoint(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    """Have S3 at ``endpoint``, as an operator would: through the environment."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def impatient(*, budget_s: float = 5.0, silence_s: float = 1.0) -> Patience:
    """Gives up within seconds and pauses for milliseconds."""
    return Patience(
        connect_s=1, silence_s=silence_s, try_s=2 * silence_s, budget_s=budget_s, pause_first_s=0.001, pause_max_s=0.01
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a client asked for."""

    method: str
    path: str
    headers: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What the proxy does with a request instead of handing it on."""

    status: int = 0
    """Answered by the proxy itself, with ``code`` as S3 does."""
    code: str = ""
    reset: bool = False
    """The connection is reset and the request lost."""
    lose_answer: bool = False
    """The request is handed on, then the connection is reset."""
    keep_bytes: int | None = None
    """The answer ends after so many bytes of its body."""
    stall: bool = False
    """No answer, until the proxy is closed."""
    without_header: str = ""
    """Handed on without this header, in small letters."""


Decide = Callable[[Request], Fault | None]


class FaultyProxy(ThreadingHTTPServer):
    """Stands before a server. ``decide`` is asked for each request; None hands it on."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target_port = port
        self.decide: Decide = lambda request: None
        self.asked: list[Request] = []
        self.closed = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closed.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is what tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultyProxy

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = Request(
            method=self.command, path=self.path, headers={name.lower(): value for name, value in self.headers.items()}
        )
        self.server.asked.append(request)
        fault = self.server.decide(request) or Fault()
        if fault.stall:
            self.server.closed.wait(60)
        elif fault.reset:
            self._reset()
        elif fault.status:
            text = f"<Error><Code>{fault.code}</Code><Message>{ACCESS_KEY}</Message></Error>".encode()
            self._answer(fault.status, {"Content-Type": "application/xml"}, text, None)
        else:
            self._hand_on(request, body, fault)

    def _hand_on(self, request: Request, body: bytes, fault: Fault) -> None:
        kept = {
            name: value for name, value in request.headers.items() if name not in ("connection", fault.without_header)
        }
        far = http.client.HTTPConnection("127.0.0.1", self.server.target_port, timeout=30)
        far.request(self.command, self.path, body=body, headers=kept)
        answer = far.getresponse()
        content = answer.read()
        far.close()
        if fault.lose_answer:
            self._reset()
            return
        dropped = ("transfer-encoding", "connection", "content-length", "date", "server")
        headers = {name: value for name, value in answer.getheaders() if name.lower() not in dropped}
        if self.command == "HEAD":
            headers["Content-Length"] = answer.getheader("Content-Length", "0")
        self._answer(answer.status, headers, content, fault.keep_bytes)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve

    def _answer(self, status: int, headers: dict[str, str], content: bytes, keep_bytes: int | None) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if keep_bytes is None:
            if self.command != "HEAD":
                self.wfile.write(content)
        else:
            self.wfile.write(content[:keep_bytes])
            self.close_connection = True

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True


def key_of(request: Request) -> str:
    """The object's key that a request is about."""
    return urlsplit(request.path).path.removeprefix(f"/{BUCKET}/")
