"""One table for each topic, in a directory with its name. All of them share a query, and so its journal.

Each table knows its own last batch: whatever died between two of them, the next run continues with the
second.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

from pyspark.sql import functions as fn

from pyromq.errors import ConfigError, RemoteProtocolError
from pyromq.spark.journal_files import journal_files
from pyromq.spark.pipelines import lake as lakes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MADE = "rocketmq-tables"
"""The directory of a journal with the names of its tables, each with the batch that made it."""


class Apply(Protocol):
    def __call__(self, frame: "DataFrame", batch: int, topic: str, place: str, form: str) -> None:
        """Apply the messages of one topic in a batch to its table."""


def directory_of(topic: str) -> str:
    """Paths know neither % nor |, and names that begin with _ are not those of tables."""
    name = quote(topic, safe="").replace("%", ".")
    return f".5F{name[1:]}" if name.startswith("_") else name


class TablesByTopic:
    def __init__(self, place: str, journal: str, form: str | None, apply: Apply) -> None:
        """`form` is that of new tables."""
        self._place = place.rstrip("/")
        self._batches = journal_files(f"{journal}/offsets")
        self._made = journal_files(f"{journal}/{_MADE}")
        self._form = form
        self._apply = apply
        self._forms: dict[str, str] = {}
        """The tables that are known to be there."""

    def __repr__(self) -> str:
        return f"<TablesByTopic {self._place} tables={len(self._forms)}>"

    def check(self, topics: Iterable[str]) -> None:
        """Refuse tables of others, and another format than a table has."""
        is_new = not self._batches.names()
        for topic in topics:
            form = self._form_there(topic)
            if form is not None and is_new:
                raise self._is_strange(topic)
            if form is not None and self._form not in (None, form):
                raise ConfigError("format", self._form, f"{form}, the format that {self._path(topic)} has")

    def apply_batch(self, frame: "DataFrame", batch: int) -> None:
        messages = frame.persist()
        try:
            for row in messages.select("topic").distinct().orderBy("topic").collect():
                self._apply_topic(messages.where(fn.col("topic") == row.topic), batch, row.topic)
        finally:
            messages.unpersist()

    def _apply_topic(self, messages: "DataFrame", batch: int, topic: str) -> None:
        name = directory_of(topic)
        form = self._form_there(topic)
        if form is None:
            form = self._begin(topic, batch)
        elif topic not in self._forms and self._made.read(name) is None:
            raise self._is_strange(topic)
        try:
            self._apply(messages, batch, topic, self._path(topic), form)
        except (ConfigError, RemoteProtocolError) as problem:
            raise RemoteProtocolError(f"topic {topic}: {problem}") from problem
        if (made := self._form_there(topic)) is not None:
            self._forms[topic] = made
        else:
            self._made.remove(name)  # there were no rows

    def _begin(self, topic: str, batch: int) -> str:
        """The format of a table that this batch makes, perhaps again."""
        made = self._made.read(directory_of(topic))
        if made is None:
            self._made.create(directory_of(topic), str(batch).encode())
        elif int(made) != batch:
            # A new one would lack the earlier rows.
            expected = (
                f"the table of {topic}, which was deleted; to begin anew, delete all tables and _changes"
            )
            raise ConfigError("lake", self._path(topic), expected)
        return self._form or lakes.DELTA

    def _is_strange(self, topic: str) -> ConfigError:
        """A table of others, or of another journal, whose batches have other numbers."""
        return ConfigError("lake", self._path(topic), "an empty directory, or one with its _changes")

    def _form_there(self, topic: str) -> str | None:
        """The format of its table; None if there is none."""
        known = self._forms.get(topic)
        forms = (known,) if known is not None else (lakes.DELTA, lakes.ICEBERG)
        there = (form for form in forms if lakes.table_at(self._path(topic), form).is_there)
        return next(there, None)

    def _path(self, topic: str) -> str:
        return f"{self._place}/{directory_of(topic)}"
