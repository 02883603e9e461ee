"""One box for everything that has a name: topics, groups, brokers, and messages by id."""

import re
from collections.abc import Iterable

from pyromq.console.page import Data
from pyromq.console.pages.topics import is_own
from pyromq.console.visit import Visit

_MAX_EACH = 50
_MESSAGE_ID = re.compile(r"[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56}")


async def show(visit: Visit) -> Data:
    q = visit.text("q")
    word, snapshot = q.lower(), visit.snapshot
    topics = _found(word, snapshot.topics)
    groups = _found(word, snapshot.groups)
    brokers = [view for view in snapshot.brokers if word and word in f"{view.key} {view.address}".lower()]
    return {
        "q": q,
        "topics": topics[:_MAX_EACH],
        "groups": groups[:_MAX_EACH],
        "brokers": brokers[:_MAX_EACH],
        "more": max(0, len(topics) - _MAX_EACH)
        + max(0, len(groups) - _MAX_EACH)
        + max(0, len(brokers) - _MAX_EACH),
        "is_id": _MESSAGE_ID.fullmatch(q) is not None,
        "id_topics": sorted(name for name, view in snapshot.topics.items() if is_own(view))[:_MAX_EACH],
    }


def _found(word: str, names: Iterable[str]) -> list[str]:
    """The shortest first: an exact name leads."""
    return sorted(
        (name for name in names if word and word in name.lower()), key=lambda name: (len(name), name)
    )
