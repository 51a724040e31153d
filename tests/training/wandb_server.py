"""A local W&B server for the real client to talk to. It keeps what it receives in memory.

It supports the few GraphQL operations and the file stream that a run, `wandb sync` and saving a
view need, and applies the stream's offsets: a line sent for an existing offset replaces the line
there.
"""

import contextlib
import gzip
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "a" * 40  # the length that W&B requires of a key


@dataclass
class Run:
    """The server's data on one run."""

    name: str
    fields: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, dict[int, str]] = field(default_factory=dict)
    exit_code: int | None = None

    @property
    def history(self) -> list[dict[str, Any]]:
        return self._rows("wandb-history.jsonl")

    @property
    def summary(self) -> dict[str, Any]:
        rows = self._rows("wandb-summary.json")
        return rows[-1] if rows else {}

    def _rows(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for _, line in sorted(self.lines.get(name, {}).items())]


@dataclass
class Server:
    """The server's runs, and its address."""

    url: str = ""
    refuses: bool = False
    runs: dict[str, Run] = field(default_factory=dict)
    views: list[dict[str, Any]] = field(default_factory=list)

    def graphql(self, operation: str, variables: dict[str, Any]) -> dict[str, Any]:
        """Answer an operation. An unknown operation gets an answer without data."""
        match operation:
            case "RunResumeStatus":
                return {"model": _PROJECT | {"bucket": self._bucket(variables["name"])}}
            case "Run" | "RunHistoryKeys":
                return {"project": {"run": self._run(variables["name"])}}
            case "UpsertBucket":
                return {"upsertBucket": self._upsert(variables)}
            case "CreateRunFiles":
                return {"createRunFiles": {"runID": "r", "uploadHeaders": [], "files": []}}
            case "CreateArtifact":
                artifact = {"id": "artifact", "state": "COMMITTED", "artifactSequence": {}}
                return {"createArtifact": {"artifact": artifact}}
            case "ArtifactType":
                return {"project": None}
            case "UpsertView2":
                self.views.append(variables)
                view = {"id": "view", "name": variables["name"]}
                return {"upsertView": {"view": view, "inserted": True}}
            case _:
                viewer = {"id": "u", "username": "tester", "entity": "tester", "flags": "{}"}
                return {"viewer": viewer}

    def _bucket(self, name: str) -> dict[str, Any] | None:
        run = self.runs.get(name)
        if run is None:
            return None
        history = [line for _, line in sorted(run.lines.get("wandb-history.jsonl", {}).items())]
        return {
            **{"id": name, "name": name, "displayName": run.fields.get("displayName")},
            "summaryMetrics": json.dumps(run.summary),
            "historyLineCount": len(history),
            **{"eventsLineCount": 0, "logLineCount": 0, "eventsTail": "[]"},
            "historyTail": json.dumps(history[-1:]),
            "config": json.dumps({key: {"value": value} for key, value in run.config.items()}),
            "tags": run.fields.get("tags"),
            "wandbConfig": json.dumps({"t": 1}),
        }

    def _run(self, name: str) -> dict[str, Any] | None:
        run = self.runs.get(name)
        if run is None:
            return None
        steps = [row["_step"] for row in run.history]
        keys = {"keys": {}, "sets": [], "lastStep": max(steps, default=-1)}
        known = {"id": name, "name": name, "summaryMetrics": json.dumps(run.summary)}
        empty = dict.fromkeys(("state", "config", "systemMetrics"), "{}")
        return {"projectId": "1", "historyKeys": keys, **known, **empty}

    def _upsert(self, variables: dict[str, Any]) -> dict[str, Any]:
        name = variables.get("name") or variables["id"]
        run = self.runs.setdefault(name, Run(name))
        if summary := variables.get("summaryMetrics"):
            run.lines["wandb-summary.json"] = {0: summary}
        run.fields |= {key: value for key, value in variables.items() if value is not None}
        for key, node in json.loads(variables.get("config") or "{}").items():
            run.config[key] = node["value"]
        entity = {"id": "e", "name": variables.get("entity") or "tester"}
        project = {"id": "p", "name": variables.get("project") or "normlab", "entity": entity}
        bucket = {
            **{"id": name, "name": name, "displayName": run.fields.get("displayName")},
            "historyLineCount": len(run.lines.get("wandb-history.jsonl", {})),
            **{"config": "{}", "project": project},
        }
        return {"bucket": bucket, "inserted": True}

    def stream(self, name: str, sent: dict[str, Any]) -> None:
        """Store lines of a run's files."""
        run = self.runs.setdefault(name, Run(name))
        for file, chunk in (sent.get("files") or {}).items():
            lines = run.lines.setdefault(file, {})
            lines |= dict(enumerate(chunk["content"], start=chunk["offset"]))
        if sent.get("complete"):
            run.exit_code = sent.get("exitcode")


_PROJECT = {"id": "p", "name": "normlab", "entity": {"id": "e", "name": "tester"}}


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    """Serve on a free port within the block."""
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing."""

        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if state.refuses:
                self._answer({"errors": [{"message": "invalid key"}]}, status=401)
                return
            answer: dict[str, Any] = {}
            if self.path == "/graphql":
                sent = json.loads(body)
                (operation,) = re.findall(r"^\s*(?:query|mutation)\s+(\w+)", sent["query"], re.M)
                answer = {"data": state.graphql(operation, sent.get("variables") or {})}
            if self.path.endswith("/file_stream"):
                state.stream(self.path.split("/")[-2], json.loads(body))
            self._answer(answer)

        def _answer(self, value: dict[str, Any], *, status: int = 200) -> None:
            text = json.dumps(value).encode()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
