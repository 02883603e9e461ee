"""`pyromq pipeline` has one command per pipeline; Spark is imported only when one of them runs."""

from pyromq.cli.tree import LazyCommand, LazyGroup

_HERE = "pyromq.apps.pipelines"

pipeline = LazyGroup(
    "pipeline",
    "Spark jobs over topics. They need `pip install 'pyromq[spark]'`.",
    {
        "archive": LazyCommand(
            f"{_HERE}.archive", "archive", "Archive topics exactly once, as Parquet, Delta or Iceberg."
        ),
        "changes": LazyCommand(
            f"{_HERE}.changes", "changes", "Apply Debezium's change events to a Delta or Iceberg table."
        ),
        "compact": LazyCommand(
            f"{_HERE}.compact", "compact", "Join the small files of a Delta or Iceberg archive."
        ),
        "dlq": LazyCommand(
            f"{_HERE}.dlq", "dlq", "Show dead letters with their reasons, or send them again."
        ),
        "history": LazyCommand(
            f"{_HERE}.history", "history", "Query archived and live messages as one table."
        ),
        "maintain": LazyCommand(
            f"{_HERE}.maintain",
            "maintain",
            "Delete rows, join files, and remove old versions of an archive or a table.",
        ),
        "replay": LazyCommand(f"{_HERE}.replay", "replay", "Send archived messages to topics again."),
        "sessions": LazyCommand(
            f"{_HERE}.sessions", "sessions", "Keep a row for each lite topic in a Delta or Iceberg table."
        ),
        "sql": LazyCommand(
            f"{_HERE}.sql", "sql", "Run streaming SQL from topics to topics, Parquet or the console."
        ),
        "trace": LazyCommand(
            f"{_HERE}.trace", "trace", "Show how long messages take from send to consumption."
        ),
    },
)
