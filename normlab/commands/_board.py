"""The server of `normlab board`: the page of a folder of runs, for this machine alone.

It answers GET at two kinds of addresses: the page, and the records that it links to, each looked up
among those that were read; no address is ever made into a path. What another name than this
machine's asks for is refused (DNS rebinding).
"""

import hashlib
import sys
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from normlab.commands._texts import TextsAtHand
from normlab.records.record import RunRecord
from normlab.records.store import without_collection
from normlab.reports.html.page import policy
from normlab.reports.html.runs import runs_page
from normlab.reports.runs import arranged
from normlab.reports.watched import Watched

ADDRESS = "127.0.0.1"
_LEAST = 1.0  # seconds between two looks at the folder
_SHARE = 20  # times as long as a look has taken, until the next


class Board:
    """The page of a folder of runs, made anew when something there has changed."""

    def __init__(self, folder: Path, *, baseline: str | None, scores: Sequence[str]) -> None:
        self.folder = folder
        self._asked = {"baseline": baseline, "scores": scores}
        self._watched = Watched([folder], leads_out=False)
        self._texts = TextsAtHand()
        self._lock = threading.Lock()
        self._next = 0.0
        self._page = b""
        self._records: dict[str, RunRecord] = {}

    @property
    def page(self) -> bytes:
        """Return the page as the runs are now, or were a moment ago."""
        with self._lock:
            begun = time.monotonic()
            if begun >= self._next:
                self._look()
                ended = time.monotonic()
                self._next = ended + max(_LEAST, _SHARE * (ended - begun))
            return self._page

    def record(self, address: str) -> RunRecord | None:
        """Return the record that the page links to by an address."""
        with self._lock:
            return self._records.get(address)

    @without_collection()
    def _look(self) -> None:
        if not self._watched.look() and self._page:
            return
        found = self._watched.runs(lambda path: path.relative_to(self.folder).as_posix())
        problems = list(self._watched.problems)
        try:
            runs = arranged(found, **self._asked)
        except ValueError as error:  # no run has yet what was asked for
            problems.append(str(error))
            runs = arranged(found)
        self._page = runs_page(
            runs, str(self.folder), problems=problems, text_of=self._texts, live=True
        ).encode()
        self._records = {
            each.place: each.run.record
            for each in found
            if each.place is not None and each.run.record is not None
        }


class Server(ThreadingHTTPServer):
    """Serves a board on this machine; raises OSError where the port is taken."""

    daemon_threads = True

    def __init__(self, board: Board, port: int) -> None:
        super().__init__((ADDRESS, port), _Handler)
        self.board = board

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Pass over a browser that has gone before it was answered."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        """Return the address of the page."""
        return f"http://{ADDRESS}:{self.server_port}/"

    @property
    def names(self) -> set[str]:
        """Return the hosts that a request may be for."""
        hosts = (ADDRESS, "localhost")
        return {f"{host}:{self.server_port}" for host in hosts} | (
            set(hosts) if self.server_port == 80 else set()
        )


class _Handler(BaseHTTPRequestHandler):
    """Answers a request."""

    server: Server
    timeout = 10.0
    protocol_version = "HTTP/1.1"
    server_version = "normlab"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer with the page or a record."""
        if self.headers.get("Host", "").lower() not in self.server.names:
            self._answer(421, b"this board answers by its own address alone\n", "text/plain")
            return
        address = unquote(urlsplit(self.path).path)[1:]
        record = self.server.board.record(address)
        if not address:
            self._page(self.server.board.page)
        elif record is not None:
            self._answer(200, record.to_json().encode(), "text/plain")
        else:
            self._answer(404, b"nothing here\n", "text/plain")

    def _page(self, page: bytes) -> None:
        tag = f'"{hashlib.sha256(page).hexdigest()[:32]}"'
        if self.headers.get("If-None-Match") == tag:
            self._answer(304, b"", "text/html", tag)
        else:
            self._answer(200, page, "text/html", tag)

    def _answer(self, status: int, content: bytes, kind: str, tag: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Security-Policy", f"{policy(live=True)}; frame-ancestors 'none'")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cache-Control", "no-store")
        if tag is not None:
            self.send_header("ETag", tag)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Leave the terminal alone."""
