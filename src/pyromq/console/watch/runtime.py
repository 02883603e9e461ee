"""A broker's runtime information, which is text by name, as figures. What it does not report is None."""

import re
from collections.abc import Mapping

from pyromq.console.watch.broker_part import BrokerPart
from pyromq.console.watch.forecast import FullDisk
from pyromq.console.watch.values import BrokerKind, BrokerView, StoreHealth
from pyromq.protocol import names
from pyromq.protocol.requests.inspection import StoreFigures

_UNITS = {"B": 0, "KiB": 1, "MiB": 2, "GiB": 3, "TiB": 4, "PiB": 5, "EiB": 6}
_SIZE = re.compile(r"([0-9]+(?:[.,][0-9]+)?) ?([KMGTPE]i)?B")

DEFAULT_CLEAN_AT = 75
DEFAULT_CLEAN_EARLY_AT = 85


def view(part: BrokerPart, full: FullDisk | None) -> BrokerView:
    told, member = part.runtime, part.member
    total, free = capacity(told.get("commitLogDirCapacity", ""))
    end, start = whole(told, "commitLogMaxOffset"), whole(told, "commitLogMinOffset")
    oldest_ms = whole(told, "earliestMessageTimeStamp")
    ours = told.get("pyromqVersion")
    permission = whole(told, "brokerPermission")
    return BrokerView(
        cluster=member.cluster,
        name=member.broker_name,
        broker_id=member.broker_id,
        address=member.address,
        is_master=member.is_master,
        source=source(part),
        told=part.told,
        lists_told=part.lists_told,
        version=f"PyroMQ {ours}" if ours else told.get("brokerVersionDesc", ""),
        started_ms=whole(told, "bootTimestamp"),
        in_per_s=number(told, "putTps"),
        # java: 4.9 spells it with one r
        out_per_s=number(told, "getTransferredTps", "getTransferedTps"),
        disk_ratio=disk_ratio(told),
        disk_total_bytes=total,
        disk_free_bytes=free,
        flush_behind_bytes=size(told.get("remainHowManyDataToFlush", "")),
        dispatch_behind_bytes=whole(told, "dispatchBehindBytes"),
        log_bytes=None if end is None or start is None else max(0, end - start),
        oldest_ms=oldest_ms if oldest_ms is not None and oldest_ms > 0 else None,
        put_latency_99_ms=None if ours else number(told, "putLatency99"),
        topics=len(part.topics) if part.lists_told.at_ms is not None else None,
        is_drained=None if permission is None else not permission & names.WRITE,
        readiness_problem=told.get("readinessProblem"),
        store=None if part.store is None else _health(part.store),
        full=full,
    )


def source(part: BrokerPart) -> BrokerKind:
    """A replica reports no lists; its version says what it is."""
    if part.source is BrokerKind.UNKNOWN and part.runtime:
        return BrokerKind.PYROMQ if "pyromqVersion" in part.runtime else BrokerKind.APACHE
    return part.source


def disk_ratio(told: Mapping[str, str]) -> float | None:
    ratio = number(told, "commitLogDiskRatio")
    # java: -1 if the directory could not be looked at
    return ratio if ratio is not None and ratio >= 0 else None


def retention_s(part: BrokerPart) -> float | None:
    """How long messages are kept; None until the broker has reported it."""
    if part.store is not None:
        return part.store.retention_hours * 3600.0
    hours = whole(part.settings, "fileReservedTime")
    return None if hours is None else hours * 3600.0


def is_cleaning_early(part: BrokerPart) -> bool:
    """Whether the disk is so full that files are deleted before they expire."""
    ratio = disk_ratio(part.runtime)
    limit = part.store.clean_early_at_percent if part.store is not None else DEFAULT_CLEAN_EARLY_AT
    return ratio is not None and ratio * 100 >= limit > 0


def clean_at(part: BrokerPart) -> float:
    """The disk usage above which the broker deletes files at any hour, as a ratio."""
    percent = part.store.clean_at_percent if part.store is not None else None
    if percent is None:
        percent = whole(part.settings, "diskMaxUsedSpaceRatio")
    return (percent or DEFAULT_CLEAN_AT) / 100


def _health(store: StoreFigures) -> StoreHealth:
    return StoreHealth(
        fault=store.fault,
        retention_hours=store.retention_hours,
        clean_at_ratio=store.clean_at_percent / 100,
        refuse_at_ratio=store.refuse_at_percent / 100,
        segments=store.segments,
        queues=store.queues,
        index_files=store.index_files,
        recovered=store.recovered,
    )


def number(told: Mapping[str, str], *names: str) -> float | None:
    """A figure as a number: the first of several, under the first name that is there."""
    for name in names:
        if name in told:
            try:
                return float(told[name].split(" ")[0])
            except ValueError:
                return None
    return None


def whole(told: Mapping[str, str], name: str) -> int | None:
    try:
        return int(told[name])
    except (KeyError, ValueError):
        return None


def size(text: str) -> int | None:
    """Bytes from a text like `1.5 GiB`."""
    found = _SIZE.search(text)
    if found is None:
        return None
    amount, unit = found.groups()
    return round(float(amount.replace(",", ".")) * 1024.0 ** _UNITS[f"{unit or ''}B"])


def capacity(text: str) -> tuple[int | None, int | None]:
    """Total and free bytes from a text like `Total : 1.0 TiB, Free : 12.5 GiB.`"""
    total, _, free = text.partition("Free")
    return size(total), size(free)
