"""A run's page served on this machine, kept up to date while the run goes on.

Only the loopback interface listens, and every request has to carry the token of the printed address and a ``Host`` of
this machine: no other page in the browser can read it.
"""

from __future__ import annotations

import hmac
import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ..errors import BackprobeError
from ..store import FILE
from ..store.reader import open_run
from .document import document, packed
from .html import served
from .steps import span


class Source:
    """The document of a run folder, made again when the run has gone on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._made: tuple[str, bytes] | None = None
        self._names: list[str] = []

    def version(self) -> str:
        """Changes whenever something was written to the run."""
        stamps = []
        for name in (FILE, f"{FILE}-wal"):
            try:
                found = (self.folder / name).stat()
            except OSError:
                continue
            if name == FILE or found.st_size:  # a reader leaves an empty log
                stamps.append(f"{found.st_mtime_ns:x}-{found.st_size:x}")
        return ".".join(stamps)

    def data(self) -> bytes:
        """The document, gzipped.

        :raises BackprobeError: the run cannot be read.
        """
        with self._lock:
            version = self.version()
            if self._made is None or self._made[0] != version:
                trace = open_run(self.folder)
                try:
                    found = document(trace, self.folder.name, version)
                    made, self._names = packed(found), [p["name"] for p in found["parameters"]]
                finally:
                    trace.close()
                self._made = (self.version() if trace.over else version, made)
            return self._made[1]

    def span(self, first: int, end: int) -> bytes:
        """The steps at positions `first` up to `end` (not included), with less thinning or none, gzipped.

        :raises BackprobeError: the run cannot be read.
        """
        self.data()
        trace = open_run(self.folder)
        try:
            return packed(span(trace, self._names, first, min(end, len(trace.steps))))
        finally:
            trace.close()


class Server(ThreadingHTTPServer):
    """Serves one run at ``address``.

    :param port: 0 takes a free one.
    :raises BackprobeError: the port cannot be had.
    """

    daemon_threads = True

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.source = Source(folder)
        self.source.data()  # a run that cannot be read is said at once
        self.token = secrets.token_urlsafe(18)
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except OSError as error:
            raise BackprobeError(f"cannot listen on port {port} of 127.0.0.1: {error.strerror}") from error

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/?token={self.token}"


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version, sys_version = "backprobe", ""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if not self._allowed(parse_qs(url.query).get("token", [""])[0]):
            self._answer(403, "text/plain", b"This address needs the token that backprobe view printed.\n")
            return
        try:
            if url.path == "/":
                self._answer(200, "text/html; charset=utf-8", served(self.server.token).encode())
            elif url.path == "/version":
                self._answer(200, "text/plain", self.server.source.version().encode())
            elif url.path == "/data":
                self._answer(200, "application/gzip", self.server.source.data())
            elif url.path == "/steps":
                query = parse_qs(url.query)
                first, end = (query.get(key, [""])[0] for key in ("from", "to"))
                if first.isdigit() and end.isdigit() and int(first) < int(end):
                    self._answer(200, "application/gzip", self.server.source.span(int(first), int(end)))
                else:
                    self._answer(400, "text/plain", b"from and to are positions of steps: 0 <= from < to\n")
            else:
                self._answer(404, "text/plain", b"There is nothing at this address.\n")
        except BackprobeError as error:
            self._answer(503, "text/plain; charset=utf-8", f"{error}\n".encode())

    def _allowed(self, token: str) -> bool:
        host = self.headers.get("Host", "").rpartition(":")[0]
        return host in ("127.0.0.1", "localhost") and hmac.compare_digest(
            token.encode("utf-8", "replace"), self.server.token.encode()
        )

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Frame-Options", "DENY")
        self.end_headers()
        try:
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):  # the reader has gone
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a terminal is for the run."""
