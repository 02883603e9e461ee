"""Tag expressions: `*`, or tags separated by `||`.

A broker compares hashes, which may collide; the consumer has the tag itself and decides.
"""

from dataclasses import dataclass

from pyromq.errors import BadExpression
from pyromq.protocol.java_hash import java_string_hash

ALL = "*"
MAX_TAGS = 2048
MAX_TAG_EXPRESSION_CHARS = 64 * 1024


@dataclass(frozen=True, slots=True)
class TagFilter:
    """The tags wanted; none means all."""

    tags: frozenset[str]
    codes: frozenset[int]

    @property
    def wants_all(self) -> bool:
        return not self.tags

    def matches_tag(self, tag: str | None) -> bool:
        return not self.tags or tag in self.tags


def parse_tags(expression: str | None) -> TagFilter:
    """Raises BadExpression for more tags than one subscription may have."""
    if expression is None or expression in ("", ALL):
        return TagFilter(frozenset(), frozenset())
    if len(expression) > MAX_TAG_EXPRESSION_CHARS:
        raise BadExpression(
            f"the tags have {len(expression)} characters: expected at most {MAX_TAG_EXPRESSION_CHARS}"
        )
    if expression.count("||") >= MAX_TAGS:
        raise BadExpression(f"{expression.count('||') + 1} tags: expected at most {MAX_TAGS}")
    tags = frozenset(filter(None, (part.strip() for part in expression.split("||"))))
    return TagFilter(tags, frozenset(map(java_string_hash, tags)))
