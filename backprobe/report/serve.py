"""A local server for a run's page, which updates the page while the run goes on.

Only the loopback interface listens, and every request has to carry the token of the printed address and a ``Host`` of
this machine, so no other page in the browser can read it. The server knows three addresses and serves no files. Any
other input is answered with one line, and none of it is printed.
"""

from __future__ import annotations

import hmac
import secrets
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ..basics.errors import BackprobeError
from ..basics.terminal import say
from ..basics.text import without_controls
from ..store import FILE
from ..store.job import load_run
from ..store.parts import PARTS
from ..view.ranks import titled
from .changes import change
from .document import document, packed
from .html import served
from .steps import span

#: Number of documents that are kept, so that a page can ask for the changes since its version.
MAX_DOCUMENTS = 3
#: Seconds that a client may be silent within a request, or not read an answer.
SILENT_S = 30


class Source:
    """The document of a run folder, made anew when the run has progressed."""

    def __init__(self, folder: Path, rank: int | None = None) -> None:
        self.folder, self._rank = folder, rank
        self._lock = threading.Lock()
        #: Version -> document, the latest last.
        self._made: dict[str, dict[str, Any]] = {}

    def version(self) -> str:
        """Return a text that changes whenever the run folder is written to."""
        stamps = []
        for path in (self.folder / FILE, self.folder / f"{FILE}-wal", *sorted(self.folder.glob(f"{PARTS}/*/[rs]*"))):
            try:
                found = path.stat()
            except OSError:
                continue
            if not path.name.endswith("-shm") and (path.suffix != f"{Path(FILE).suffix}-wal" or found.st_size):
                # a reader leaves an empty log, and a file that it shares with others
                stamps.append(f"{found.st_mtime_ns:x}-{found.st_size:x}")
        return ".".join(stamps)

    def latest(self) -> dict[str, Any]:
        """Return the document of the run as it is now.

        :raises BackprobeError: the run cannot be read.
        """
        with self._lock:
            version = self.version()
            made = self._made.get(version)
            if made is None:
                trace = load_run(self.folder, self._rank)
                try:
                    made = document(trace, titled(self.folder.name, trace), version)
                finally:
                    trace.close()
                if trace.over:  # there is no other writer: the reader itself merged the log, which changed the version
                    made["version"] = self.version()
                self._made[made["version"]] = made
                for old in [*self._made][:-MAX_DOCUMENTS]:
                    del self._made[old]
            return made

    def data(self, since: str = "") -> bytes | None:
        """Return the document, gzipped; ``None`` if nothing has changed since version `since`.

        Only the changes, if the document of that version is still known.

        :raises BackprobeError: the run cannot be read.
        """
        before = self._made.get(since)
        made = self.latest()
        if made["version"] == since:
            return None
        return packed(made if before is None else {"since": since, "change": change(before, made)})

    def span(self, first: int, end: int) -> bytes:
        """Return the steps at positions `first` up to `end` (not included), gzipped, with less thinning or none.

        :raises BackprobeError: the run cannot be read.
        """
        names = [p["name"] for p in self.latest()["parameters"]]
        trace = load_run(self.folder, self._rank)
        try:
            return packed(span(trace, names, first, min(end, len(trace.steps))))
        finally:
            trace.close()


class Server(ThreadingHTTPServer):
    """Serves one run at ``address``.

    :param port: 0 takes a free one.
    :param rank: the rank whose steps are shown, for a multi-process run; see ``load_run``.
    :raises BackprobeError: the port is not available.
    """

    daemon_threads = True

    def __init__(self, folder: Path, port: int = 0, rank: int | None = None) -> None:
        self.source = Source(folder, rank)
        self.source.latest()  # reports at once if the run cannot be read
        self.token = secrets.token_urlsafe(18)
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except OSError as error:
            raise BackprobeError(f"cannot listen on port {port} of 127.0.0.1: {error.strerror}") from error

    def handle_error(self, request: object, client_address: object) -> None:
        """Print errors of the server in one line; ignore clients that disconnected."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            say(f"backprobe: a request for the page failed: {type(error).__name__}: {error}", sys.stderr)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/?token={self.token}"


class _Handler(BaseHTTPRequestHandler):
    """Answers the page's requests: ``/`` (the page), ``/data`` (the document or its changes), ``/steps``
    (some steps).
    """

    server: Server
    server_version, sys_version = "backprobe", ""
    timeout = SILENT_S
    default_request_version = "HTTP/1.0"  # an answer always has a status

    def do_GET(self) -> None:
        """Answer a request; errors of a damaged run become one line of text with the status 503."""
        try:
            url = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(url.query, max_num_fields=10).items()}
        except ValueError:
            self._answer(400, "text/plain", b"This is no address.\n")
            return
        if not self._allowed(query.get("token", "")):
            self._answer(403, "text/plain", b"This address needs the token that backprobe view printed.\n")
            return
        try:
            if url.path == "/":
                self._answer(200, "text/html; charset=utf-8", served(self.server.token).encode())
            elif url.path == "/data":
                data = self.server.source.data(query.get("since", ""))
                self._answer(204 if data is None else 200, "application/gzip", data or b"")
            elif url.path == "/steps":
                first, end = (_position(query.get(key, "")) for key in ("from", "to"))
                if first is not None and end is not None and first < end:
                    self._answer(200, "application/gzip", self.server.source.span(first, end))
                else:
                    self._answer(400, "text/plain", b"from and to are positions of steps: 0 <= from < to\n")
            else:
                self._answer(404, "text/plain", b"There is nothing at this address.\n")
        except BackprobeError as error:
            self._answer(503, "text/plain; charset=utf-8", f"{without_controls(str(error))}\n".encode())
        except OSError:
            raise
        except Exception as error:  # values of a damaged run that contradict each other
            said = f"The run is damaged, or backprobe has an error: {type(error).__name__}: {error}"
            self._answer(503, "text/plain; charset=utf-8", f"{without_controls(said)[:500]}\n".encode())

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer an invalid request or an unsupported method in one line."""
        self.close_connection = True
        self._answer(code, "text/plain", b"backprobe answers GET requests for its page.\n")

    def _allowed(self, token: str) -> bool:
        """Return whether a request has the right token and a host name of this machine, so that other web pages cannot
        read.
        """
        hosts = self.headers.get_all("Host", [])
        host = hosts[0].partition(":")[0] if len(hosts) == 1 else ""
        return host in ("127.0.0.1", "localhost") and hmac.compare_digest(
            token.encode("utf-8", "replace"), self.server.token.encode()
        )

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        """Send status, headers and body; a client that is gone is ignored."""
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Frame-Options", "DENY")
        try:
            self.end_headers()
            if getattr(self, "command", None) != "HEAD":
                self.wfile.write(body)
        except OSError:  # the reader has gone, or takes nothing
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: the terminal belongs to the run."""


def _position(text: str) -> int | None:
    """Return the position of a step; ``None`` if `text` is not a position."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
