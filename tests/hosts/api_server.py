"""A stand-in for the API server of Kubernetes: enough of it for `kubectl exec job/NAME`."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import subprocess
import threading
import urllib.parse
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import PIPE
from typing import Any, BinaryIO

PROTOCOL = "v5.channel.k8s.io"
STDIN, STDOUT, STDERR, ERROR, CLOSE = 0, 1, 2, 3, 255
_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class ApiServer(ThreadingHTTPServer):
    """`pods`: job -> the environment in which commands run."""

    daemon_threads = True

    def __init__(self, pods: Mapping[str, Mapping[str, str]]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pods = pods
        self.asked: list[str] = []

    def __enter__(self) -> ApiServer:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def write_config(self, file: Path) -> None:
        """Writes kubectl's configuration."""
        server = {"name": "x", "cluster": {"server": f"http://127.0.0.1:{self.server_address[1]}"}}
        context = {"name": "x", "context": {"cluster": "x", "user": ""}}
        kind = {"apiVersion": "v1", "kind": "Config", "current-context": "x"}
        file.write_text(json.dumps({**kind, "clusters": [server], "contexts": [context]}))


class _Handler(BaseHTTPRequestHandler):
    server: ApiServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        split = urllib.parse.urlsplit(self.path)
        query = urllib.parse.parse_qs(split.query)
        self.server.asked.append(self.path)
        parts = split.path.strip("/").split("/")
        if parts[-1] == "exec" and self.headers.get("Upgrade", "").lower() == "websocket":
            self._exec(parts[-2].removesuffix("-pod"), query)
        else:
            found = self._object(split.path, parts, query)
            self._answer(found if found is not None else _not_found(parts), 200 if found is not None else 404)

    def _object(self, path: str, parts: list[str], query: Mapping[str, list[str]]) -> Any:
        if path == "/version":
            return {"major": "1", "minor": "33", "gitVersion": "v1.33.0"}
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            version = {"groupVersion": "batch/v1", "version": "v1"}
            group = {"name": "batch", "versions": [version], "preferredVersion": version}
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]}
        if path == "/api/v1":
            return _resources("v1", "pods", "Pod")
        if path == "/apis/batch/v1":
            return _resources("batch/v1", "jobs", "Job")
        if len(parts) < 2:
            return None
        if parts[-2] == "jobs" and parts[-1] in self.server.pods:
            selector = {"matchLabels": {"job-name": parts[-1]}}
            own = {"kind": "Job", "apiVersion": "batch/v1", "metadata": _metadata(parts[-1])}
            return {**own, "spec": {"selector": selector}}
        if parts[-1] == "pods":
            job = query["labelSelector"][0].partition("=")[2]
            return {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [_pod(job)]}
        if parts[-2] == "pods" and parts[-1].removesuffix("-pod") in self.server.pods:
            return _pod(parts[-1].removesuffix("-pod"))
        return None

    def _answer(self, content: Any, status: int) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _exec(self, job: str, query: Mapping[str, list[str]]) -> None:
        key = hashlib.sha1(self.headers["Sec-WebSocket-Key"].encode() + _MAGIC).digest()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(key).decode())
        self.send_header("Sec-WebSocket-Protocol", PROTOCOL)
        self.end_headers()
        self.wfile.flush()
        self.close_connection = True
        lock = threading.Lock()
        with subprocess.Popen(
            query["command"], env=self.server.pods[job], stdin=PIPE, stdout=PIPE, stderr=PIPE
        ) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            assert child.stderr is not None
            pumps = [
                threading.Thread(target=self._pump, args=(one, channel, lock), daemon=True)
                for one, channel in ((child.stdout, STDOUT), (child.stderr, STDERR))
            ]
            threading.Thread(target=self._feed, args=(child.stdin,), daemon=True).start()
            for one in pumps:
                one.start()
            for one in pumps:
                one.join()
            code = child.wait()
        status: dict[str, Any] = {"metadata": {}, "status": "Success"}
        if code:
            causes = [{"reason": "ExitCode", "message": str(code)}]
            status = {"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
            status["message"] = f"command terminated with non-zero exit code: {code}"
        self._send(bytes([ERROR]) + json.dumps(status).encode(), lock)
        self._send(struct.pack(">H", 1000), lock, opcode=8)

    def _pump(self, stream: BinaryIO, channel: int, lock: threading.Lock) -> None:
        while data := stream.read1(32768):  # type: ignore[attr-defined]
            self._send(bytes([channel]) + data, lock)

    def _send(self, data: bytes, lock: threading.Lock, opcode: int = 2) -> None:
        size = len(data)
        assert size < 65536
        length = bytes([size]) if size < 126 else struct.pack(">BH", 126, size)
        with lock, suppress(OSError):
            self.wfile.write(bytes([0x80 | opcode]) + length + data)
            self.wfile.flush()

    def _feed(self, stdin: BinaryIO) -> None:
        """What the client sends: to the command's standard input."""
        with suppress(OSError):
            while (message := self._message()) is not None:
                if message[:1] == bytes([STDIN]):
                    stdin.write(message[1:])
                    stdin.flush()
                elif message[:1] == bytes([CLOSE]):
                    break
            stdin.close()

    def _message(self) -> bytes | None:
        whole = b""
        while True:
            head = self.rfile.read(2)
            if len(head) < 2:
                return None
            size = head[1] & 0x7F
            if size == 126:
                (size,) = struct.unpack(">H", self.rfile.read(2))
            elif size == 127:
                (size,) = struct.unpack(">Q", self.rfile.read(8))
            mask = self.rfile.read(4) if head[1] & 0x80 else bytes(4)
            data = bytes(one ^ mask[at % 4] for at, one in enumerate(self.rfile.read(size)))
            if head[0] & 0xF == 8:
                return None
            if head[0] & 0xF in (9, 10):
                continue
            whole += data
            if head[0] & 0x80:
                return whole


def _metadata(name: str) -> dict[str, str]:
    return {"name": name, "namespace": "default", "uid": "1"}


def _pod(job: str) -> dict[str, Any]:
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {**_metadata(f"{job}-pod"), "labels": {"job-name": job}},
        "spec": {"containers": [{"name": "trainer", "image": "x"}]},
        "status": {"phase": "Running", "conditions": [condition], "containerStatuses": []},
    }


def _resources(version: str, plural: str, kind: str) -> dict[str, Any]:
    own = {"name": plural, "singularName": kind.lower(), "namespaced": True, "kind": kind, "verbs": ["get", "list"]}
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": [own]}


def _not_found(parts: list[str]) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": "NotFound",
        "code": 404,
        "message": f'{parts[-2]} "{parts[-1]}" not found',
    }
