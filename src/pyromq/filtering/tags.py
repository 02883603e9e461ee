"""Tag expressions: `*`, or tags separated by `||`.

A broker compares hashes, which may collide; only the consumer, who has the tag itself, decides for good.
"""

from dataclasses import dataclass

from pyromq.protocol.java_hash import java_string_hash

ALL = "*"


@dataclass(frozen=True, slots=True)
class TagFilter:
    """The tags wanted; none means all."""

    tags: frozenset[str]
    codes: frozenset[int]

    @property
    def wants_all(self) -> bool:
        return not self.tags

    def may_match_code(self, tags_code: int) -> bool:
        return not self.codes or tags_code in self.codes

    def matches_tag(self, tag: str | None) -> bool:
        return not self.tags or tag in self.tags


def parse_tags(expression: str | None) -> TagFilter:
    if expression is None or expression in ("", ALL):
        return TagFilter(frozenset(), frozenset())
    tags = frozenset(filter(None, (part.strip() for part in expression.split("||"))))
    return TagFilter(tags, frozenset(map(java_string_hash, tags)))
