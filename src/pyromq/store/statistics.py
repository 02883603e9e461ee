"""Statistics of the store. Counts start when the store is opened."""

from dataclasses import dataclass

from pyromq.store.faults import Fault


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """For metrics and admin commands."""

    log_start_offset: int
    log_end_offset: int
    flushed_offset: int
    dispatched_offset: int
    dispatch_behind_bytes: int
    flush_behind_bytes: int
    appended_messages: int
    appended_bytes: int
    refused_messages: int
    read_messages: int
    read_bytes: int
    sync_count: int
    waiting_appends: int
    segments: int
    topics: int
    queues: int
    mapped_queue_files: int
    index_files: int
    index_entries: int
    removed_segments: int
    last_store_timestamp: int
    faults: Fault
    fault_reason: str
    disk_used_ratio: float
