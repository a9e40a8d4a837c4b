"""A server that speaks WebHDFS's REST protocol, as a name node and a data node do, with files in memory.

It can be made to fail, as servers of every kind of storage do: `refuse` and `refuse_data`.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

Refusal = tuple[int, str]
"""A status, and the message of a RemoteException; without a message the body is none of JSON."""

Lie = Callable[[BaseHTTPRequestHandler, str, bool], bool]
"""Answers a request in place of the server, by the operation and whether the data node is asked; False: it does not."""

UNAVAILABLE: Refusal = (503, "")
EXPIRED: Refusal = (403, "Token has expired")


class Server:
    """`files`: path -> content; `calls`: how often each operation was asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.times: dict[str, float] = {}
        self.directories: set[str] = {"/"}
        self.calls: Counter[str] = Counter()
        self.refuse: Refusal | None = None
        self.refuse_data: Refusal | None = None
        self.lie: Lie | None = None

    def put(self, path: str, data: bytes) -> None:
        self.files[path], self.times[path] = data, time.time()
        self.make(path.rpartition("/")[0])

    def make(self, path: str) -> None:
        while path not in self.directories and path:
            self.directories.add(path)
            path = path.rpartition("/")[0]

    def entries(self, path: str) -> list[str]:
        return [
            one for one in (*self.files, *self.directories) if one != "/" and (one.rpartition("/")[0] or "/") == path
        ]

    def status(self, path: str) -> dict[str, object]:
        is_file = path in self.files
        return {
            "pathSuffix": path.rpartition("/")[2],
            "type": "FILE" if is_file else "DIRECTORY",
            "length": len(self.files.get(path, b"")),
            "modificationTime": int(self.times.get(path, 0.0) * 1000),
        }


@contextmanager
def serving() -> Iterator[tuple[Server, str]]:
    """Serves WebHDFS; yields the address, such as 127.0.0.1:9870."""
    server = Server()

    class Handler(_Handler):
        tree = server

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        threading.Thread(target=http.serve_forever, args=(0.05,), daemon=True).start()
        yield server, f"127.0.0.1:{http.server_port}"
        http.shutdown()


class _Handler(BaseHTTPRequestHandler):
    tree: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do(self) -> None:
        url = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        path = unquote(url.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        is_data = "namenoderpcaddress" in asked
        self.tree.calls[asked["op"] + (" data" if is_data else "")] += 1
        if self.tree.lie is not None and self.tree.lie(self, asked["op"], is_data):
            return None
        refusal = self.tree.refuse_data if is_data else self.tree.refuse
        if refusal is not None:
            return self.fail(*refusal)
        path = path.removeprefix("/webhdfs/v1").rstrip("/") or "/"
        return self.of_data_node(asked, path, body) if is_data else self.of_name_node(asked, path, url.query)

    do_GET = do_PUT = do_POST = do_DELETE = do

    def of_name_node(self, asked: dict[str, str], path: str, query: str) -> None:
        tree, op = self.tree, asked["op"]
        known = path in tree.files or path in tree.directories
        if op in ("GETFILESTATUS", "LISTSTATUS", "OPEN") and not known:
            return self.fail(404, f"File does not exist: {path}", "FileNotFoundException")
        if op in ("OPEN", "CREATE", "APPEND"):
            host = self.headers["Host"]
            return self.answer(
                307, b"", Location=f"http://{host}{urlsplit(self.path).path}?{query}&namenoderpcaddress=n:1"
            )
        if op == "GETFILESTATUS":
            return self.answer(200, {"FileStatus": {**tree.status(path), "pathSuffix": ""}})
        if op == "LISTSTATUS":
            found = (
                [tree.status(one) for one in tree.entries(path)]
                if path not in tree.files
                else [{**tree.status(path), "pathSuffix": ""}]
            )
            return self.answer(200, {"FileStatuses": {"FileStatus": found}})
        if op == "MKDIRS":
            tree.make(path)
            return self.answer(200, {"boolean": True})
        assert op == "DELETE", op
        tree.directories.discard(path)
        return self.answer(200, {"boolean": tree.files.pop(path, None) is not None})

    def of_data_node(self, asked: dict[str, str], path: str, body: bytes) -> None:
        if asked["op"] == "OPEN":
            begin = int(asked.get("offset", 0))
            data = self.tree.files[path]
            return self.answer(200, data[begin : begin + int(asked.get("length", len(data)))])
        before = self.tree.files.get(path, b"") if asked["op"] == "APPEND" else b""
        self.tree.put(path, before + body)
        return self.answer(201 if asked["op"] == "CREATE" else 200, b"")

    def fail(self, status: int, message: str, kind: str = "AccessControlException") -> None:
        reported = {"RemoteException": {"exception": kind, "javaClassName": "", "message": message}}
        self.answer(status, reported if message else b"the service is unavailable")

    def answer(self, status: int, content: object, **headers: str) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
