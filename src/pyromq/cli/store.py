"""`pyromq store` reads the files of a broker.

Only `repair` changes them: no broker may be running then. `restore` makes new ones.
"""

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from pyromq.admin.failures import nearest
from pyromq.cli.moments import MOMENTS, moment_ms
from pyromq.cli.progress import progress_bar
from pyromq.cli.stored_messages import as_json, body_text, message_id
from pyromq.cli.tables import console, moment, printable, table
from pyromq.cluster.connection_url import KEY_FILE_VARIABLE, TRUST_VARIABLE, credentials_in
from pyromq.cluster.signing import signers
from pyromq.errors import Refused, StoreError
from pyromq.protocol.record import StoredMessage
from pyromq.protocol.requests.pulling import ViewMessage
from pyromq.remoting.blocking_link import Link, LinkOptions
from pyromq.remoting.tls import TlsClient, TlsOptions
from pyromq.security.signature import Credentials
from pyromq.store import offline_repair
from pyromq.store.filenames import offset_name
from pyromq.store.offline import OfflineStore, Verification
from pyromq.tier.manifest import SegmentEntry
from pyromq.tier.manifests import Manifests
from pyromq.tier.opening import open_objects
from pyromq.tier.restoring import Restoring

_PREVIEW_CHARACTERS = 60

_DIRECTORY = click.argument(
    "directory", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR"
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def store() -> None:
    """Inspect or repair the store directory of a PyroMQ or Apache broker, or restore one from its tier."""


@store.command()
@_DIRECTORY
@click.option("--verify", is_flag=True, help="Read every record and every queue unit, and compare them.")
def inspect(directory: Path, verify: bool) -> None:
    """Show what DIR holds: log files, queues, index files, deleted topics, checkpoint.

    With --verify the exit code is 1 if anything is damaged.
    """
    out = console()
    with _looking_into(directory) as opened:
        _show_overview(out, opened)
        _show_files(out, opened)
        _show_queues(out, opened)
        _show_index(out, opened)
        _show_deletions(out, opened)
        for remark in opened.remarks:
            out.print(f"note: {printable(remark)}")
        if verify:
            log_bytes = opened.log_end - opened.log_start
            with progress_bar("reading every record", log_bytes) as tell:
                verification = opened.verify(tell)
            _show_verification(out, verification)
            if not verification.is_sound:
                raise click.exceptions.Exit(1)


@store.command()
@_DIRECTORY
@click.option("--topic", required=True, help="The topic whose messages are shown.")
@click.option("--queue", type=click.IntRange(min=0), help="Only this queue.")
@click.option("--from-offset", type=click.IntRange(min=0), default=0, help="Skip earlier queue offsets.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    help="Show at most this many; 0 shows all.",
)
@click.option(
    "--json", "lines", is_flag=True, help="Print one JSON object per line, with every stored field."
)
def dump(directory: Path, topic: str, queue: int | None, from_offset: int, limit: int, lines: bool) -> None:
    """Show the messages of a topic in DIR, queue by queue."""
    with _looking_into(directory) as opened:
        topics = opened.topics()
        if topic not in topics:
            hint = nearest(topic, topics, "`pyromq store inspect` lists the topics")
            raise StoreError(f"no topic {topic} in {directory}; {hint}")
        found = opened.messages(topic, queue, from_offset)
        shown = islice(found, limit or None)
        total = _count(opened, topic, queue, from_offset, limit)
        # No progress bar on a terminal that shows the lines.
        with progress_bar("reading messages", total, is_hidden=lines and sys.stdout.isatty()) as tell:
            rows = None if lines else _new_table(topic)
            for message in shown:
                if rows is None:
                    click.echo(as_json(message))
                else:
                    _add_row(rows, message)
                tell(1)
        if rows is not None:
            console().print(rows)
        for remark in opened.remarks:
            click.echo(f"note: {printable(remark)}", err=True)
        if limit and next(found, None) is not None:
            click.echo(f"there are more messages: raise --limit above {limit}", err=True)


@store.command()
@_DIRECTORY
@click.option(
    "--from",
    "address",
    required=True,
    metavar="HOST:PORT",
    help="A broker of the group that has the messages.",
)
@click.option(
    "--access-key", envvar="PYROMQ_ACCESS_KEY", show_envvar=True, help="Sign requests as this user."
)
@click.option("--secret-key", envvar="PYROMQ_SECRET_KEY", show_envvar=True, help="The user's secret.")
@click.option(
    "--key-file",
    envvar=KEY_FILE_VARIABLE,
    show_envvar=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Sign requests with AccessKey= and SecretKey= of this file.",
)
@click.option("--tls", is_flag=True, help="Connect with TLS.")
@click.option(
    "--tls-trust",
    envvar=TRUST_VARIABLE,
    show_envvar=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Connect with TLS, and check the broker's certificate against those in this file (PEM).",
)
def repair(
    directory: Path,
    address: str,
    access_key: str | None,
    secret_key: str | None,
    key_file: Path | None,
    tls: bool,
    tls_trust: Path | None,
) -> None:
    """Repair the log of DIR with the records of another broker of its group.

    Stop the broker of DIR first; a running broker repairs its log itself. The exit code is 1 if damage
    remains.
    """
    out = console()
    credentials = Credentials(access_key, secret_key) if access_key and secret_key else None
    if credentials is None and key_file is not None:
        credentials = credentials_in(key_file)
    chosen = TlsOptions.chosen(tls, tls_trust)
    options = LinkOptions(tls=None if chosen is None else TlsClient(chosen), new_signer=signers(credentials))
    left = count = 0
    with _looking_into(directory) as opened, closing(Link(address, options)) as link:

        def view(offset: int) -> bytes | None:
            try:
                return link.call(ViewMessage(offset=offset)).body
            except Refused:
                return None

        with progress_bar("reading every record", opened.log_end - opened.log_start) as tell:
            found = list(offline_repair.repair(opened, view, tell))
        for damage, reason in found:
            outcome = f"not repaired: {reason}" if reason else "repaired"
            out.print(
                f"log offsets {damage.start} to {damage.end}, {damage.end - damage.start} bytes:"
                f" {printable(damage.reason)}: {printable(outcome)}"
            )
            count += 1
            left += bool(reason)
        for remark in opened.remarks:
            out.print(f"note: {printable(remark)}")
    out.print(f"{count - left} damaged ranges repaired, {left} left")
    if left:
        raise click.exceptions.Exit(1)


@store.command()
@click.option(
    "--from",
    "place",
    required=True,
    metavar="URI|DIR",
    help="The tieredStoreFilePath of the broker that is lost.",
)
@click.option(
    "--to",
    "directory",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The new store: an empty directory, or one in which a restore was interrupted.",
)
@click.option("--cluster", default="DefaultCluster", show_default=True, help="The brokerClusterName.")
@click.option("--broker", required=True, help="The brokerName.")
@click.option("--endpoint", default="", metavar="URL", help="As objectStoreEndpoint of the broker.")
@click.option("--newest", type=click.IntRange(min=1), metavar="N", help="Only the newest N log files.")
@click.option("--since", metavar="TIME", help=f"Only files with messages since {MOMENTS}.")
@click.option("--without-tables", is_flag=True, help="Without topics, groups and offsets.")
@click.option("--dry-run", is_flag=True, help="Say what there is and what is missing, and change nothing.")
def restore(
    place: str,
    directory: Path,
    cluster: str,
    broker: str,
    endpoint: str,
    newest: int | None,
    since: str | None,
    without_tables: bool,
    dry_run: bool,
) -> None:
    """Build the store of a lost broker again from its tier.

    With --newest or --since the older files stay in the tier, and the broker serves them from there. The
    exit code is 0 only if everything was restored. Otherwise no broker starts with DIR, and the same command
    continues.
    """
    since_ms = moment_ms(since) if since is not None else 0
    if since_ms is None or (since is not None and newest is not None):
        raise click.BadParameter(f"expected {MOMENTS}, and not together with --newest", param_hint="--since")
    out = console()
    objects = open_objects(place, cluster, broker, endpoint=endpoint, key="--from")
    restoring = Restoring(Manifests(objects, cluster, broker, "restore"), directory)
    plan = restoring.plan(newest, since_ms)
    count, total = len(plan.entries), len(plan.manifest.segments)
    out.print(
        f"manifest {plan.manifest.number} of {printable(objects.place)}: {count} of {total} log files,"
        f" log offsets {plan.log_start} to {plan.manifest.end}, {plan.log_bytes} bytes"
    )
    if dry_run:
        for hole in plan.holes:
            out.print(f"note: {hole}")
        _report(out, restoring.missing(plan, with_tables=not without_tables))
        out.print("nothing was restored: --dry-run")
        return
    with progress_bar("restoring", plan.log_bytes) as tell:
        done = 0

        def one_more(entry: SegmentEntry) -> None:
            nonlocal done
            done += 1
            tell(entry.log_end - entry.log_start)
            if not sys.stderr.isatty():
                out.print(f"{done} of {count}: {offset_name(entry.log_start)}")

        outcome = restoring.run(plan, one_more, with_tables=not without_tables)
    for remark in outcome.remarks:
        out.print(f"note: {printable(remark)}")
    _report(out, outcome.problems)
    out.print(
        f"restored {directory}: {outcome.restored} log files now, {outcome.kept} before. Start the broker"
        f" with mappedFileSizeCommitLog={plan.file_bytes} and the same tieredStoreFilePath"
    )


def _report(out: Console, problems: list[str]) -> None:
    for each in problems:
        out.print(f"not restorable: {printable(each)}")
    if problems:
        out.print(f"not restored: put back what is missing or damaged ({len(problems)}), and run this again")
        raise click.exceptions.Exit(1)


@contextmanager
def _looking_into(directory: Path) -> Iterator[OfflineStore]:
    try:
        with OfflineStore(directory) as opened:
            yield opened
    except BrokenPipeError:
        raise  # stdout failed, not the store
    except OSError as error:
        raise StoreError(f"cannot read the store in {directory}: {error}") from error


def _count(opened: OfflineStore, topic: str, queue: int | None, from_offset: int, limit: int) -> int:
    total = sum(
        max(each.max_offset - max(each.min_offset, from_offset), 0)
        for each in opened.queues(topic)
        if queue is None or each.queue_id == queue
    )
    return min(total, limit) if limit else total


def _show_overview(out: Console, opened: OfflineStore) -> None:
    overview = table(f"Store {opened.paths.root}")
    overview.show_header = False
    state = "closed cleanly" if opened.was_clean else "open now, or not closed cleanly"
    overview.add_row("state", state)
    overview.add_row("log offsets", f"{opened.log_start} to {opened.log_end}")
    overview.add_row("checkpoint of the log", moment(opened.checkpoint.log_timestamp))
    overview.add_row("checkpoint of the queues", moment(opened.checkpoint.queue_timestamp))
    overview.add_row("checkpoint of the index", moment(opened.checkpoint.index_timestamp))
    out.print(overview)


def _show_files(out: Console, opened: OfflineStore) -> None:
    files = table("Commit log", "file", "bytes", "used", "first message")
    for each in opened.segments():
        first = moment(each.first_store_timestamp)
        files.add_row(each.path.name, str(each.size_bytes), str(each.used_bytes), first)
    out.print(files)


def _show_queues(out: Console, opened: OfflineStore) -> None:
    queues = table("Queues", "topic", "queue", "min offset", "max offset", "messages", "files")
    for each in opened.queues():
        numbers = (
            each.queue_id,
            each.min_offset,
            each.max_offset,
            each.max_offset - each.min_offset,
            each.files,
        )
        queues.add_row(printable(each.topic), *map(str, numbers))
    out.print(queues)


def _show_index(out: Console, opened: OfflineStore) -> None:
    index = table("Index", "file", "entries", "slots used", "from", "to")
    for each in opened.index_files():
        begin, end = moment(each.begin_timestamp), moment(each.end_timestamp)
        index.add_row(each.path.name, str(each.entries), str(each.used_slots), begin, end)
    out.print(index)


def _show_deletions(out: Console, opened: OfflineStore) -> None:
    if not opened.deletions:
        return
    deletions = table("Deleted topics", "topic", "messages before log offset", "deleted", "state")
    for each in opened.deletions:
        state = "finished" if each.is_finished else "finished at the next start"
        deletions.add_row(printable(each.topic), str(each.log_offset), moment(each.time_ms), state)
    out.print(deletions)


def _show_verification(out: Console, verification: Verification) -> None:
    out.print(
        f"verified {verification.records} records ({verification.record_bytes} bytes)"
        f" and {verification.units} queue units: {'sound' if verification.is_sound else 'damaged'}"
    )
    for each in verification.damage:
        out.print(f"damage: {printable(each)}")
    if verification.damaged_bytes or verification.messages_missing:
        out.print(
            f"total damage: {verification.damaged_bytes} bytes of the log,"
            f" {verification.messages_missing} messages lost"
        )
    for start, end in verification.filled:
        out.print(
            f"note: log offsets {start} to {end} were damaged; the bytes were set aside at an earlier start"
        )


def _new_table(topic: str) -> Table:
    return table(
        f"Messages of {printable(topic)}", "queue", "offset", "stored", "message id", "tags", "keys", "body"
    )


def _add_row(rows: Table, message: StoredMessage) -> None:
    rows.add_row(
        str(message.queue_id),
        str(message.queue_offset),
        moment(message.store_timestamp),
        message_id(message),
        printable(message.get("TAGS") or ""),
        printable(message.get("KEYS") or ""),
        _preview(message),
    )


def _preview(message: StoredMessage) -> str:
    text = body_text(message)
    if text is None:
        return f"({len(message.body)} bytes)"
    cut = text[:_PREVIEW_CHARACTERS]
    return printable(cut) + ("…" if len(text) > len(cut) else "")
