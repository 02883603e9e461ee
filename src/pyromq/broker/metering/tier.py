"""The lake tier: what it has, how far the uploads are behind, and what readers fetch."""

from collections.abc import Callable

from pyromq.broker.services.tiering import Tiering
from pyromq.metrics import Labels, Metrics


def register_tier(metrics: Metrics, tiering: Tiering) -> None:
    def of_manifest(name: str, sentence: str, read: Callable[[], float]) -> None:
        metrics.gauge(f"pyromq_tier_{name}", sentence, read)

    of_manifest(
        "lag_bytes", "Bytes of closed log files that are not in the tier yet.", lambda: tiering.lag_bytes
    )
    of_manifest(
        "lag_seconds", "For how long the oldest of these files has been waiting.", lambda: tiering.lag_s
    )
    of_manifest("log_bytes", "Size of the log that is in the tier.", lambda: tiering.log_bytes)
    of_manifest("segments", "Segments in the tier.", lambda: len(tiering.segments))
    of_manifest("bytes", "Size of these segments.", lambda: sum(each.size_bytes for each in tiering.segments))
    of_manifest(
        "manifest_number",
        "Number of the newest manifest.",
        lambda: tiering.manifest.number if tiering.manifest is not None else 0,
    )
    of_manifest("fenced", "Whether another master writes the tier.", lambda: tiering.is_fenced)
    of_manifest("has_problem", "Whether uploads do not succeed at the moment.", lambda: bool(tiering.problem))
    of_manifest(
        "damaged_segments", "Segments that could not be read the last time.", lambda: len(tiering.damaged)
    )
    of_manifest("cache_bytes", "Memory for messages from the tier.", lambda: tiering.blocks.size_bytes)

    def counted(name: str, sentence: str, read: Callable[[], int]) -> None:
        metrics.read_counter(f"pyromq_tier_{name}_total", sentence, read)

    counted("upload_failures", "Attempts to upload that failed.", lambda: tiering.failures)
    counted("uploaded_bytes", "Bytes of log files that were uploaded.", lambda: tiering.uploaded_bytes)
    counted("written_bytes", "Bytes that went to the object store.", lambda: tiering.traffic.written_bytes)
    counted("read_bytes", "Bytes that came from the object store.", lambda: tiering.traffic.read_bytes)

    def requests() -> dict[Labels, int]:
        traffic = tiering.traffic
        return {
            ("write",): traffic.writes,
            ("read",): traffic.reads,
            ("list",): traffic.lists,
            ("remove",): traffic.removals,
        }

    metrics.labelled_read_counter(
        "pyromq_tier_requests_total", "Requests to the object store.", requests, ("operation",)
    )
    counted("read_failures", "Reads from the tier that failed.", lambda: tiering.blocks.failures)
    counted("read_blocks", "Blocks that were fetched.", lambda: tiering.blocks.fetched)
    counted("cache_hits", "Blocks that were wanted and in memory.", lambda: tiering.blocks.hits)
    counted(
        "messages_out", "Messages from the tier that consumers got.", lambda: tiering.history.messages_out
    )
