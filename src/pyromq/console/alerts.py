"""Alerts: a webhook gets each alarm and warning that has lasted for a while, and its end.

The address is in the settings alone, and no answer leads anywhere else: redirects are failures. An alert that
cannot be posted is tried again a few times, then dropped and logged. Posted alerts are kept in a file, so
that a restart does not post them again.
"""

import asyncio
import logging
import urllib.request
from collections import deque
from collections.abc import Callable, Container, Mapping
from typing import Any, Final
from urllib.error import HTTPError

import msgspec

from pyromq.console.alerts_file import AlertsFile, Key
from pyromq.console.languages import DEFAULT_LANGUAGE, Texts
from pyromq.console.watch.values import Problem, Severity, Snapshot

_log = logging.getLogger(__name__)

Post = Callable[[bytes], None]
"""Blocking; raises OSError."""

RETRY_S: Final = (1.0, 5.0, 30.0)
_TIMEOUT_S: Final = 10.0
_MAX_WAITING: Final = 1000
_TOLD: Final = (Severity.ALARM, Severity.WARNING)
_SETTLED_MS: Final = 300_000
"""A watch that has just started does not know every problem yet: a problem posted before the start has not
ended just because it is not among the first ones."""


class Alerts:
    """`look` with every snapshot of every cluster; `run` sends what it found."""

    def __init__(
        self, post: Post, after_s: float, file: AlertsFile | None = None, clusters: Container[str] = ()
    ) -> None:
        self._post = post
        self._after_ms = after_s * 1000
        self._file = file
        self._told: dict[Key, Problem] = {} if file is None else file.load(clusters)
        self._unseen = set(self._told)
        """Posted before the start, and not found again so far."""
        self._first_ms: dict[str, int] = {}
        """When each cluster was first looked at."""
        self._waiting: deque[tuple[bytes, dict[Key, Problem]]] = deque(maxlen=_MAX_WAITING)
        """The alerts to post, and the problems that each reports."""
        self._has_some = asyncio.Event()
        self._texts = Texts(DEFAULT_LANGUAGE)
        self.sent = 0
        self.dropped = 0
        self.problem = ""
        """Why the latest one could not be sent."""

    def __repr__(self) -> str:
        return f"<Alerts standing={len(self._told)} waiting={len(self._waiting)} sent={self.sent}>"

    def look(self, cluster: str, snapshot: Snapshot) -> None:
        standing = {
            (cluster, each.kind, each.about, each.name): each
            for each in snapshot.problems
            if each.severity in _TOLD
        }
        began = {
            key: each
            for key, each in standing.items()
            if key not in self._told and snapshot.at_ms - each.since_ms >= self._after_ms
        }
        self._unseen -= standing.keys()
        if snapshot.at_ms - self._first_ms.setdefault(cluster, snapshot.at_ms) >= _SETTLED_MS:
            self._unseen = {key for key in self._unseen if key[0] != cluster}
        ended = {
            key: each
            for key, each in self._told.items()
            if key[0] == cluster and key not in standing and key not in self._unseen
        }
        if began or ended:
            self._told = {key: each for key, each in self._told.items() if key not in ended} | began
            self._put(cluster, snapshot.at_ms, began, ended)

    def _put(
        self, cluster: str, at_ms: int, began: Mapping[Key, Problem], ended: Mapping[Key, Problem]
    ) -> None:
        if len(self._waiting) == _MAX_WAITING:
            self.dropped += 1
        lines = [f"{each.severity.upper()} {self._sentence(each)}" for each in began.values()]
        lines += [f"ended: {self._sentence(each)}" for each in ended.values()]
        content = {
            "cluster": cluster,
            "atMs": at_ms,
            "text": f"PyroMQ {cluster}\n" + "\n".join(lines),
            "began": [_facts(each) for each in began.values()],
            "ended": [_facts(each) for each in ended.values()],
        }
        self._waiting.append((msgspec.json.encode(content), self._told))
        self._has_some.set()

    def _sentence(self, problem: Problem) -> str:
        values = " ".join(str(value) for value in problem.values.values())
        return f"{problem.name} {self._texts(f'problem.{problem.kind}')} {values}".strip()

    async def run(self) -> None:
        """Send for ever, one after the other."""
        while True:
            await self._has_some.wait()
            while self._waiting:
                content, told = self._waiting.popleft()
                await self._send(content)
                if self._file is not None:
                    await asyncio.to_thread(self._file.save, told)
            self._has_some.clear()

    async def _send(self, content: bytes) -> None:
        for wait_s in (0.0, *RETRY_S):
            await asyncio.sleep(wait_s)
            try:
                await asyncio.to_thread(self._post, content)
            except OSError as problem:
                # Not its text: it may have the address, which is a secret.
                self.problem = (
                    f"HTTP {problem.code}" if isinstance(problem, HTTPError) else type(problem).__name__
                )
            else:
                self.sent += 1
                self.problem = ""
                return
        self.dropped += 1
        _log.warning("an alert could not be sent problem=%s", self.problem)


def _facts(problem: Problem) -> dict[str, Any]:
    return {
        "kind": problem.kind,
        "severity": str(problem.severity),
        "about": problem.about,
        "name": problem.name,
        "values": dict(problem.values),
        "sinceMs": problem.since_ms,
    }


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def poster(url: str) -> Post:
    opener = urllib.request.build_opener(_NoRedirects)

    def post(content: bytes) -> None:
        headers = {"Content-Type": "application/json", "User-Agent": "PyroMQ console"}
        request = urllib.request.Request(url, content, headers, method="POST")
        with opener.open(request, timeout=_TIMEOUT_S) as answer:
            answer.read(1)

    return post
