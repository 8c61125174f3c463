"""The API server as the checks of a cluster see it: by a kubeconfig with a token, over HTTPS."""

from __future__ import annotations

import http.client
import json
import re
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

Document = dict[str, Any]

SILENCE = 20.0  # seconds without a word from a watch after which it is asked anew
PAUSE = 0.2  # before an API server that is away is asked again


class Api:
    """One connection, of one thread; it is made anew whenever it broke."""

    def __init__(self, kubeconfig: Path) -> None:
        words = kubeconfig.read_text()

        def word(pattern: str) -> str:
            found = re.search(pattern, words)
            if found is None:
                raise SystemExit(f"{kubeconfig}: nothing there is like {pattern}")
            return found.group(1)

        self.host, self.port = word(r"https://([^:]+):"), int(word(r"https://[^:]+:(\d+)"))
        self.token = word(r"token: \"?([^\"}\s]+)")
        self.tls = ssl.create_default_context(cafile=word(r"certificate-authority: ([^}\s]+)"))
        self.line: Optional[http.client.HTTPSConnection] = None

    def close(self) -> None:
        if self.line is not None:
            self.line.close()
        self.line = None

    def ask(
        self, method: str, path: str, body: Optional[Document] = None
    ) -> http.client.HTTPResponse:
        if self.line is None:
            self.line = http.client.HTTPSConnection(
                self.host, self.port, timeout=SILENCE, context=self.tls
            )
        head = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        self.line.request(method, path, None if body is None else json.dumps(body), head)
        return self.line.getresponse()

    def create(self, path: str, body: Document) -> None:
        answer = self.ask("POST", path, body)
        said = answer.read()
        if answer.status not in (200, 201):
            raise RuntimeError(f"{path}: {answer.status} {said.decode()[:300]}")

    def list(self, path: str) -> Document:
        answer = self.ask("GET", path)
        said = answer.read()
        if answer.status != 200:
            raise OSError(f"{path}: {answer.status}")
        listed: Document = json.loads(said)
        return listed


def follow(api: Api, path: str, told: Callable[[str, Document], None]) -> None:
    """Lists and watches for good: told(change, object). After a break the list says what it missed,
    and what is gone meanwhile is DELETED."""
    known: dict[str, Document] = {}
    while True:
        try:
            listed = api.list(path)
            here = {one["metadata"]["uid"]: one for one in listed["items"]}
            for uid in [uid for uid in known if uid not in here]:
                told("DELETED", known.pop(uid))
            for uid, one in here.items():
                before = known.get(uid)
                known[uid] = one
                version = one["metadata"]["resourceVersion"]
                if before is None or before["metadata"]["resourceVersion"] != version:
                    told("ADDED" if before is None else "MODIFIED", one)
            watch(api, path, listed["metadata"]["resourceVersion"], known, told)
        except (OSError, http.client.HTTPException, ValueError):
            api.close()
            time.sleep(PAUSE)


def watch(
    api: Api,
    path: str,
    version: str,
    known: dict[str, Document],
    told: Callable[[str, Document], None],
) -> None:
    """Until the API server ends it, which it does after some seconds: silence then is a break."""
    seconds = int(SILENCE / 2)
    while True:
        answer = api.ask("GET", f"{path}?watch=1&resourceVersion={version}&timeoutSeconds={seconds}"
                         "&allowWatchBookmarks=true")
        if answer.status != 200:
            answer.read()
            raise OSError(f"watch of {path}: {answer.status}")
        while line := answer.readline():
            event = json.loads(line)
            one = event["object"]
            if event["type"] == "ERROR":
                raise OSError(f"watch of {path}: {one.get('message')}")
            version = one["metadata"]["resourceVersion"]
            if event["type"] == "BOOKMARK":
                continue
            uid = one["metadata"]["uid"]
            if event["type"] == "DELETED":
                known.pop(uid, None)
            else:
                known[uid] = one
            told(event["type"], one)
