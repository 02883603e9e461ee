"""The options that all pipelines share: the cluster and Spark; a failure is one line."""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pyromq import errors
from pyromq.admin.pipeline_runs import RUNS
from pyromq.apps.pipelines.kept_run import kept_run
from pyromq.cli.cluster_options import ClusterOptions, cluster_options
from pyromq.cli.signals import exit_on_signals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyromq.spark.pipelines.tallies import Show, Tally

F = TypeVar("F", bound=Callable[..., Any])

_FIRST_PAUSE_S, _LAST_PAUSE_S = 1.0, 60.0
_GOOD_RUN_S = 600.0
"""After a run of this length a failure is a new one."""

_LASTING = re.compile(r"\b(ConfigError|RemoteProtocolError|BadMessage|DataLoss): ")
"""Our own errors in Spark's text that recur however often a job starts."""

SETTINGS = {"help_option_names": ["-h", "--help"], "show_default": True}

_OPTIONS = (
    click.option(
        "-O",
        "--option",
        "pairs",
        multiple=True,
        metavar="NAME=VALUE",
        help="An option of the connector, as in docs/howto/spark.md; repeatable.",
    ),
    click.option("--master", default="local[*]", help="Spark master."),
    click.option("--memory", default="1g", help="The memory of the driver."),
    click.option(
        "--conf", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of Spark; repeatable."
    ),
    click.option(
        "--metrics", metavar="HOST:PORT", help="Address at which Prometheus can read the lag of the job."
    ),
    click.option(
        "--runs",
        default=str(RUNS),
        envvar="PYROMQ_PIPELINE_RUNS",
        metavar="DIR",
        help="Directory in which this run reports its progress to the web console; empty turns this off.",
    ),
)


@dataclass(frozen=True, slots=True)
class PipelineJob:
    """One run of a pipeline."""

    options: dict[str, str]
    """Options of the connector: the cluster, and those given with -O."""
    master: str
    memory: str
    settings: dict[str, str] = field(default_factory=dict)
    metrics: str | None = None
    runs: Path | None = None
    """Where this run reports itself."""

    @contextmanager
    def spark(
        self, name: str, *places: str, check: Callable[[], object] | None = None
    ) -> Iterator["SparkSession"]:
        """A new session, or the active one of this process. `check` raises what can be known before.

        If one of the `places` is in S3, a new session gets Hadoop's way there, unless settings name packages.
        """
        if find_spec("pyspark") is None or find_spec("pyarrow") is None:
            raise click.ClickException("pipelines run on Spark: pip install 'pyromq[spark]'")
        if check is not None:
            check()
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        from pyromq.spark.object_stores import hadoop_packages
        from pyromq.spark.pipelines.quiet import java_has_ended, quiet_session

        running = SparkSession.getActiveSession()
        with exit_on_signals():
            try:
                spark = running or quiet_session(
                    f"pyromq-{name}",
                    self.master,
                    self.memory,
                    hadoop_packages(places) | self.settings,
                    self.metrics,
                )
                try:
                    yield spark
                finally:
                    if running is None:
                        spark.stop()
            except PySparkException as problem:
                raise click.ClickException(short(str(problem))) from problem
            except (Py4JError, ConnectionError):
                if not java_has_ended():
                    raise
                raise click.ClickException("Spark's Java process has ended: it was killed") from None

    @contextmanager
    def reported(self, name: str, place: str | None, *, is_live: bool = True) -> "Iterator[Show]":
        """Show the progress on the terminal, and keep it for the web console."""
        from pyromq.spark.pipelines.display import reported

        with (
            kept_run(self.runs, name, place or "", self.options, short) as run,
            reported(is_live=is_live) as show,
        ):

            def both(tallies: "Mapping[str, Tally]") -> None:
                show(tallies)
                if run is not None:
                    run.show(tallies)

            yield both

    def run(
        self,
        name: str,
        place: str,
        work: "Callable[[SparkSession, Show], object]",
        *,
        check: Callable[[], object] | None = None,
        restart: bool = False,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        """Do the work in a session. With `restart` it is done again after failures that may pass."""
        with self.spark(name, place, check=check) as spark:
            from pyspark.errors import PySparkException

            pause_s = _FIRST_PAUSE_S
            while True:
                started = time.monotonic()
                try:
                    with self.reported(name, place) as show:
                        work(spark, show)
                    return
                except PySparkException as problem:
                    if not restart or _LASTING.search(str(problem)):
                        raise
                    if time.monotonic() - started > _GOOD_RUN_S:
                        pause_s = _FIRST_PAUSE_S
                    click.echo(f"{short(str(problem))}; starting again in {pause_s:.0f} s", err=True)
                wait(pause_s)
                pause_s = min(2 * pause_s, _LAST_PAUSE_S)


def job_options(command: F) -> F:
    """Add these options to a command, which receives them as one argument, `job`."""

    @wraps(command)
    def with_job(
        *arguments: Any,
        cluster: ClusterOptions,
        pairs: tuple[str, ...],
        master: str,
        memory: str,
        settings: tuple[str, ...],
        metrics: str | None,
        runs: str,
        **others: Any,
    ) -> Any:
        options = connector_options(cluster) | assignments("-O", pairs)
        kept = Path(runs).expanduser() if runs else None
        job = PipelineJob(options, master, memory, assignments("--conf", settings), metrics, kept)
        return command(*arguments, job=job, **others)

    for option in reversed(_OPTIONS):
        option(with_job)
    return cluster_options(with_job)  # type: ignore[return-value]


def connector_options(cluster: ClusterOptions) -> dict[str, str]:
    """The options of the connector for the cluster that the command line names."""
    options = {"namesrv": cluster.namesrv}
    given = cluster.options
    if given.get("namespace"):
        raise click.UsageError(
            "--namespace is not supported by pipelines: write full names, as in `namespace%topic`"
        )
    if (credentials := given.get("credentials")) is not None:
        options |= {"accessKey": credentials.access_key, "secretKey": credentials.secret_key}
    if (tls := given.get("tls")) is not None:
        options["tls"] = "true"
        if tls.trust_path is not None:
            options["tlsCaFile"] = str(tls.trust_path)
    return options


def topics_options(topics: tuple[str, ...], pattern: str | None) -> dict[str, str]:
    """The topics to read; empty if the command line names none."""
    if topics and pattern:
        raise click.UsageError("give -t or --pattern, not both")
    if pattern:
        return {"subscribePattern": pattern}
    return {"subscribe": ",".join(topics)} if topics else {}


def can_read(options: Mapping[str, str]) -> Callable[[], object]:
    """A check of the options with which a stream is read."""

    def check() -> object:
        from pyromq.spark.options import read_options

        return read_options(options, streaming=True)

    return check


def can_write(options: Mapping[str, str]) -> Callable[[], object]:
    """A check of the options with which messages are sent."""

    def check() -> object:
        from pyromq.spark.options import write_options

        return write_options(options)

    return check


TOPIC = click.option("-t", "--topic", "topics", multiple=True, help="A topic; repeatable.")
PATTERN = click.option("--pattern", metavar="REGEX", help="All topics whose names match this.")
CATALOG = click.option(
    "--catalog",
    metavar="CATALOG.NAMESPACE.TABLE",
    help="Make a new Iceberg table in this catalog, which pyiceberg knows by its configuration.",
)
TABLE_FORMAT = click.option(
    "--format",
    "form",
    type=click.Choice(["delta", "iceberg"]),
    help="Format of a new table. An existing table keeps its format.",
    show_default="delta",
)
FOLLOW = click.option("--follow", is_flag=True, help="Wait for new messages, until Ctrl-C.")
RESTART = click.option(
    "--restart",
    is_flag=True,
    help="Restart after a temporary failure: after 1 second, later after up to a minute.",
)
EVERY = click.option(
    "--every", default="1 second", metavar="TIME", help="With --follow: the time between batches."
)


def trigger(follow: bool, every: str) -> dict[str, Any]:
    return {"processingTime": every} if follow else {"availableNow": True}


def assignments(option: str, pairs: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise click.UsageError(f"{option} {pair}: expected NAME=VALUE")
        found[name] = value
    return found


def short(text: str) -> str:
    """One line of Spark's long error text: our own error if it contains one, else its first line."""
    ours = "|".join(name for name in vars(errors) if name[0].isupper())
    found = re.findall(rf"(?:^|pyromq\.errors\.)(?:{ours}): (.+)$", text, re.MULTILINE)
    if found:
        return str(found[-1])
    return next((line.strip() for line in text.splitlines() if line.strip()), text)
