"""The known name that an unknown one was probably meant to be, found without comparing it with all of them.

Exact comparison of two names is slow, so it is done only with the few that share most pairs of letters.
"""

import difflib
from collections import Counter
from collections.abc import Iterable

_CANDIDATES = 12
_MAX_NAME_CHARS = 128


class NearestName:
    def __init__(self, names: Iterable[str]) -> None:
        self._by_lower = {name.lower(): name for name in names}
        self._by_pair: dict[str, list[str]] = {}
        for name in self._by_lower:
            for pair in _pairs(name):
                self._by_pair.setdefault(pair, []).append(name)

    def __repr__(self) -> str:
        return f"<NearestName names={len(self._by_lower)}>"

    def find(self, name: str) -> str | None:
        """None if nothing is near; no setting has a name as long as those that are not even compared."""
        if len(name) > _MAX_NAME_CHARS:
            return None
        wanted = name.lower()
        shared: Counter[str] = Counter()
        for pair in _pairs(wanted):
            shared.update(self._by_pair.get(pair, ()))
        # Long names share pairs with everything: what counts is how much of both is shared.
        likeness = {each: count / (len(each) + len(wanted)) for each, count in shared.items()}
        candidates = sorted(likeness, key=likeness.__getitem__, reverse=True)[:_CANDIDATES]
        close = difflib.get_close_matches(wanted, candidates, n=1)
        return self._by_lower[close[0]] if close else None

    def hint(self, name: str, otherwise: str) -> str:
        """The end of a text about an unknown name in a program."""
        found = self.find(name)
        return f"did you mean {found!r}?" if found else otherwise


def _pairs(name: str) -> set[str]:
    return {name[at : at + 2] for at in range(len(name) - 1)}
