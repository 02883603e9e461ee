"""Subscriptions: a topic with a filter: tags, an SQL92 expression, or code for filter servers."""

import re
from dataclasses import dataclass

from pyromq.client.consumer.reading.server_filter import FilterCode, ServerFilter
from pyromq.errors import BadExpression, ConfigError
from pyromq.filtering.sql_parser import compile_sql
from pyromq.filtering.tags import ALL, parse_tags
from pyromq.protocol.names import topic_problem
from pyromq.protocol.requests.membership import SubscriptionData

TAG, SQL92 = "TAG", "SQL92"

_OTHER_SEPARATORS = re.compile(r"\||&&|,\s")
"""Written where `||` was meant."""
_LIKE_SQL = re.compile(r"[<>]|\s=\s|\s(is|between|in)\s", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Sql:
    """An SQL92 expression over the properties of messages: `Sql("a BETWEEN 0 AND 3")`; also over fields of
    JSON bodies, if the broker has `filterSupportBody`: `Sql("body.amount > 100")`."""

    text: str


Expression = str | Sql | ServerFilter
"""Tags as in `Created || Paid`, `*` for everything, `Sql(...)`, or a filter that filter servers run."""


def chosen_expression(expression: Expression, code: FilterCode | None) -> Expression:
    """The filter that `subscribe` was given: an expression, or code."""
    if code is None:
        return expression
    if expression != ALL:
        raise BadExpression(f"give either the expression {expression!r} or a filter, which can do the same")
    return ServerFilter.of(code)


def check_topic(topic: str) -> None:
    problem = topic_problem(topic)
    if problem is not None:
        raise ConfigError("topic", topic, f"another name: {problem}")


@dataclass(frozen=True, slots=True)
class Subscription:
    """One topic of a consumer; `version` is the time of its last change, in milliseconds."""

    topic: str
    expression: str
    expression_type: str
    tags: frozenset[str]
    codes: frozenset[int]
    version: int
    filter: ServerFilter | None = None

    @classmethod
    def of(cls, topic: str, expression: Expression, version: int) -> "Subscription":
        """Raises BadExpression: a mistake is found before any broker is asked."""
        if isinstance(expression, ServerFilter):
            return cls(topic, expression.name, TAG, frozenset(), frozenset(), version, expression)
        if isinstance(expression, Sql):
            if not isinstance(expression.text, str):
                raise BadExpression(f'Sql takes an expression as in Sql("a > 1"), not {expression.text!r}')
            compile_sql(expression.text)
            return cls(topic, expression.text, SQL92, frozenset(), frozenset(), version)
        if not isinstance(expression, str):
            raise BadExpression(
                f'expression must be tags as in "Created || Paid", "*" or Sql("a > 1"), not {expression!r}'
            )
        wanted = parse_tags(expression)
        if expression.strip() and not wanted.tags and expression != ALL:
            raise BadExpression(f"the expression {expression!r} has no tag; `*` means all messages")
        for tag in wanted.tags:
            _check_tag(tag)
        # java: every expression that means all messages is sent as a star
        return cls(topic, expression if wanted.tags else ALL, TAG, wanted.tags, wanted.codes, version)

    def data(self) -> SubscriptionData:
        return SubscriptionData(
            topic=self.topic,
            sub_string=self.expression,
            expression_type=self.expression_type,
            tags_set=set(self.tags),
            code_set=set(self.codes),
            sub_version=self.version,
            class_filter_mode=self.filter is not None,
        )

    def wants(self, tag: str | None) -> bool:
        """Brokers compare hashes of tags, which may collide, so the consumer compares the tag itself."""
        return not self.tags or tag in self.tags


def _check_tag(tag: str) -> None:
    """A mistyped expression is one odd tag, for which the consumer would wait for ever."""
    if _LIKE_SQL.search(tag):
        raise BadExpression(f"{tag!r} looks like SQL, but is one tag: write Sql({tag!r})")
    if _OTHER_SEPARATORS.search(tag):
        raise BadExpression(
            f'{tag!r} is one tag: for several write "Created || Paid"; for a tag that is really written so,'
            " Sql(\"TAGS = '...'\")"
        )
