"""`pyromq pipeline`: one command for each ready pipeline; Spark is imported when one of them runs."""

from pyromq.cli.tree import LazyCommand, LazyGroup

_HERE = "pyromq.apps.pipelines"

pipeline = LazyGroup(
    "pipeline",
    "Spark jobs over topics. They need `pip install 'pyromq[spark]'`.",
    {
        "archive": LazyCommand(f"{_HERE}.archive", "archive", "Topics into a Parquet lake, exactly once."),
        "dlq": LazyCommand(f"{_HERE}.dlq", "dlq", "Dead letters: how many, why, and back again."),
        "history": LazyCommand(f"{_HERE}.history", "history", "Lake and live messages as one table."),
        "replay": LazyCommand(f"{_HERE}.replay", "replay", "A lake back into topics."),
        "sql": LazyCommand(f"{_HERE}.sql", "sql", "Streaming SQL from topics to topics, Parquet, console."),
        "trace": LazyCommand(f"{_HERE}.trace", "trace", "How long messages take from send to consume."),
    },
)
