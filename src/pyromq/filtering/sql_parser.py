"""From the text of an SQL92 filter expression to a compiled one.

    or         = and ( OR and )*
    and        = equality ( AND equality )*
    equality   = comparison ( "=" comparison | "<>" comparison | IS [ NOT ] NULL )*
    comparison = unary ( ">" unary | ">=" unary | "<" unary | "<=" unary | [ NOT ] BETWEEN unary AND unary
                       | [ NOT ] IN "(" text, … ")" | [ NOT ] ( CONTAINS | STARTSWITH | ENDSWITH ) text )*
    unary      = "+" unary | "-" unary | NOT unary | literal | property | field | "(" or ")"
    field      = "body" ( "." name | "['" any name "']" | "[" number "]" )+

java: NOT binds tighter than "=", and whatever follows a complete expression is ignored; where the expression
names fields of the body, which no other broker knows, that is an error.
"""

import re
from collections.abc import Callable
from operator import ge, gt, le, lt

from pyromq.errors import BadExpression
from pyromq.filtering import sql_eval as sql
from pyromq.filtering.json_body import Path
from pyromq.filtering.sql_lexer import SqlTokens

MAX_EXPRESSION_CHARS = 32 * 1024
MAX_WORK = 2048
"""How much work a filter may be for each message: its operands, and more for each search in a text."""

_MAX_DEPTH = 100
_MAX_STEPS = 8
_MAX_INDEX_DIGITS = 6
_TEXT_TEST_WORK = 16
_BODY_TEXT_TEST_WORK = 64
"""A text of a body may be longer than that of a property."""
_MAX_REMEMBERED_CHARS = 64 * 1024
_ORDERINGS: dict[str, sql.Operator] = {">": gt, ">=": ge, "<": lt, "<=": le}
_TEXT_TESTS: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": lambda text, part: part in text,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}
_NEGATABLE = frozenset(("BETWEEN", "IN", *_TEXT_TESTS))


class SqlFilter:
    """A compiled expression; `work` is the cost of evaluating it, and of keeping it."""

    def __init__(self, expression: str, root: sql.Node, work: int = 1, *, reads_body: bool = False) -> None:
        """`reads_body`: whether it must be asked about `MessageWithBody`, which have the body."""
        self.expression = expression
        self.work = work
        self.reads_body = reads_body
        self._evaluate = root.evaluate

    def __repr__(self) -> str:
        return f"<SqlFilter {self.expression!r}>"

    def matches(self, properties: sql.Properties) -> bool:
        try:
            return self._evaluate(properties) is True
        except sql.Unmatched:
            return False


def compile_sql(expression: str) -> SqlFilter:
    """The filter of an expression, or `BadExpression` saying what is wrong with it.

    RocketMQ sets no limits; ours keep one filter from holding up all other clients.
    """
    if len(expression) > MAX_EXPRESSION_CHARS:
        raise BadExpression(
            f"the expression has {len(expression)} characters: expected at most {MAX_EXPRESSION_CHARS}"
        )
    return _remembered.get(expression) or _remember(expression)


def _compile(expression: str) -> SqlFilter:
    parser = _Parser(expression)
    root = sql.as_truth(parser.disjunction(0))
    if parser.reads_body:
        parser.expect_end()
    return SqlFilter(expression, root, parser.work, reads_body=parser.reads_body)


_remembered: dict[str, SqlFilter] = {}
"""The expressions compiled last: a pull may bring the same one each time."""


def _remember(expression: str) -> SqlFilter:
    compiled = _compile(expression)
    # A compiled expression is many times as large: the cache does not keep all that clients may send.
    while _remembered and sum(map(len, _remembered)) + len(expression) > _MAX_REMEMBERED_CHARS:
        del _remembered[next(iter(_remembered))]
    _remembered[expression] = compiled
    return compiled


class _Parser:
    def __init__(self, expression: str) -> None:
        self._tokens = SqlTokens(expression)
        self.work = 0
        self.reads_body = False

    def expect_end(self) -> None:
        self._tokens.expect_end()

    def disjunction(self, depth: int) -> sql.Node:
        nodes = [self._conjunction(depth)]
        while self._tokens.kind == "OR":
            self._tokens.take()
            nodes.append(self._conjunction(depth))
        return nodes[0] if len(nodes) == 1 else sql.some([sql.as_truth(node) for node in nodes])

    def _conjunction(self, depth: int) -> sql.Node:
        nodes = [self._equality(depth)]
        while self._tokens.kind == "AND":
            self._tokens.take()
            nodes.append(self._equality(depth))
        return nodes[0] if len(nodes) == 1 else sql.every([sql.as_truth(node) for node in nodes])

    def _equality(self, depth: int) -> sql.Node:
        left = self._comparison(depth)
        while (kind := self._tokens.kind) in ("=", "<>", "IS"):
            self._tokens.take()
            if kind == "IS":
                if self._tokens.take_one_of("NULL", "NOT").kind == "NULL":
                    left = sql.is_null(left)
                else:
                    self._tokens.take_one_of("NULL")
                    left = sql.is_not_null(left)
            else:
                same = sql.equal(left, self._comparison(depth))
                left = same if kind == "=" else sql.not_(same)
            _check_depth(left.depth)
        return left

    def _comparison(self, depth: int) -> sql.Node:
        left = self._unary(depth)
        while True:
            kind = self._tokens.kind
            wanted = True
            if kind == "NOT" and self._tokens.kind_after() in _NEGATABLE:
                self._tokens.take()
                kind = self._tokens.kind
                wanted = False
            if kind in _ORDERINGS:
                self._tokens.take()
                left = sql.ordered(_ORDERINGS[kind], left, self._unary(depth))
            elif kind in _TEXT_TESTS:
                self._tokens.take()
                self._add_work(_BODY_TEXT_TEST_WORK if left.is_typed else _TEXT_TEST_WORK)
                left = sql.text_test(left, _TEXT_TESTS[kind], self._text(), wanted=wanted)
            elif kind == "BETWEEN":
                self._tokens.take()
                low = self._unary(depth)
                self._tokens.take_one_of("AND")
                make = sql.between if wanted else sql.not_between
                left = make(left, low, self._unary(depth))
            elif kind == "IN":
                self._tokens.take()
                left = sql.in_(left, self._choices(), wanted=wanted)
            else:
                return left
            _check_depth(left.depth)

    def _unary(self, depth: int) -> sql.Node:
        _check_depth(depth)
        self._add_work(1)
        token = self._tokens.take()
        match token.kind:
            case "+":
                return self._unary(depth + 1)
            case "-":
                return sql.negated(self._unary(depth + 1))
            case "NOT":
                return sql.not_(sql.as_truth(self._unary(depth + 1)))
            case "(":
                inner = self.disjunction(depth + 1)
                self._tokens.take_one_of(")")
                return inner
            case "word":
                return sql.property_(token.text)
            case "path":
                self.reads_body = True
                return sql.body_field(_path(token.text))
            case "string":
                return sql.constant(_unquoted(token.text))
            case "integer":
                return sql.integer(token.text)
            case "float":
                return sql.floating(token.text)
            case "TRUE" | "FALSE":
                return sql.constant(token.kind == "TRUE")
            case "NULL":
                return sql.constant(None)
        raise self._tokens.refuse(token)

    def _add_work(self, work: int) -> None:
        self.work += work
        if self.work > MAX_WORK:
            raise BadExpression(
                f"the expression is too large: it may have {MAX_WORK} operands, of which each CONTAINS,"
                f" STARTSWITH and ENDSWITH counts {_TEXT_TEST_WORK} times; IN with a list counts once."
                f" On a field of the body CONTAINS and the like count {_BODY_TEXT_TEST_WORK} times"
            )

    def _text(self) -> str:
        return _unquoted(self._tokens.take_one_of("string").text)

    def _choices(self) -> list[str | int | float]:
        self._tokens.take_one_of("(")
        choices = [self._choice()]
        while self._tokens.take_one_of(",", ")").kind == ",":
            choices.append(self._choice())
        return choices

    def _choice(self) -> str | int | float:
        sign = -1 if self._tokens.kind == "-" else 1
        if sign < 0:
            self._tokens.take()
        token = self._tokens.take_one_of(*(("integer", "float") if sign < 0 else _CHOICES))
        if token.kind == "string":
            return _unquoted(token.text)
        number = (sql.integer if token.kind == "integer" else sql.floating)(token.text).constant
        assert isinstance(number, int | float), number
        return sign * number


_PATH_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]|\['((?:''|[^'])*)'\]")
_CHOICES = ("string", "integer", "float")


def _path(text: str) -> Path:
    steps: list[str | int] = []
    for name, index, quoted in _PATH_STEP.findall(text):
        if len(index) > _MAX_INDEX_DIGITS:
            raise BadExpression(f"[{index[:20]}] is not an index of a list: expected at most 999999")
        steps.append(name or (int(index) if index else quoted.replace("''", "'")))
    if len(steps) > _MAX_STEPS:
        raise BadExpression(
            f"{text[:200]!r} goes {len(steps)} levels into the body: expected at most {_MAX_STEPS}"
        )
    return tuple(steps)


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _check_depth(depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise BadExpression(f"the expression is nested more than {_MAX_DEPTH} deep")
