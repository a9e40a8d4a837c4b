"""What a browser has that has opened an address of `dtctl dashboard` or `dtctl tensorboard`, without a browser."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


class Page:
    """`place`: the path that the address has led to."""

    def __init__(self, address: str) -> None:
        self._at = urlsplit(address)
        self.cookie = ""
        status, headers, text = self.get(f"/?{self._at.query}")
        assert status == 200, text
        self.cookie = headers["set-cookie"].partition(";")[0]
        self.place = text.partition("url=")[2].partition('"')[0]

    def get(self, path: str) -> tuple[int, dict[str, str], str]:
        with self.asked(path) as answer:
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode()

    def below(self, path: str = "") -> str:
        """What is shown there."""
        status, _, text = self.get(self.place + path)
        assert status == 200, text
        return text

    def json(self, path: str) -> Any:
        return json.loads(self.below(path))

    @contextmanager
    def asked(
        self, path: str, method: str = "GET", body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPConnection(str(self._at.hostname), self._at.port, timeout=60)
        own = {"Cookie": self.cookie} if self.cookie else {}
        with closing(connection):
            connection.request(method, path, body, {**own, **(headers or {})})
            with connection.getresponse() as answer:
                yield answer


def tensorboards(word: str) -> list[int]:
    """Processes that show log directories, with this word in their arguments."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            arguments = (process / "cmdline").read_bytes()
            if b"--logdir" in arguments and word.encode() in arguments:
                found.append(int(process.name))
    return found
