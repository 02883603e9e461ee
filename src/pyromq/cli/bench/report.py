"""The figures of a run: as lines, as JSON to compare with later runs, and as a picture."""

from html import escape
from typing import Any

from pyromq.cli.bench.latencies import Latencies
from pyromq.cli.bench.loads import LoadPlan, LoadResult
from pyromq.cli.rate_line import amount

SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "p99.99": 0.9999}
_BAR = 40


def figures(kind: str, plan: LoadPlan, result: LoadResult) -> dict[str, Any]:
    seconds = result.seconds or 1e-9
    found: dict[str, Any] = {
        "load": kind,
        "sizeBytes": plan.size,
        "offeredRate": plan.rate,
        "inFlight": plan.in_flight,
        "connections": plan.connections,
        "messages": result.messages,
        "failed": result.failed,
        "seconds": result.seconds,
        "messagesPerSecond": result.messages / seconds,
        "bytesPerSecond": result.size_bytes / seconds,
    }
    if result.times.count:
        times = {name: result.times.at(share) for name, share in SHARES.items()}
        found["latencyMs"] = {**times, "max": result.times.max_ms, "mean": result.times.mean_ms}
        found["histogram"] = [
            {"belowMs": below, "messages": count} for below, count in result.times.doublings()
        ]
    return found


def lines(found: dict[str, Any], times: Latencies) -> list[str]:
    told = [
        f"{found['load']}: {found['messages']:,} messages of {amount(found['sizeBytes'])}"
        f" in {found['seconds']:.1f} s, {found['failed']:,} failed",
        f"rate     {found['messagesPerSecond']:,.0f}/s, {amount(found['bytesPerSecond'])}/s",
    ]
    if "latencyMs" in found:
        latencies = found["latencyMs"]
        told.append("latency  " + ", ".join(f"{name} {ms:.2f}" for name, ms in latencies.items()) + " ms")
        most = max(count for _, count in times.doublings())
        for below, count in times.doublings():
            told.append(f"  < {below:>10,.3f} ms {'█' * round(count / most * _BAR):<{_BAR}} {count:,}")
    return told


def comparison(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The figures of two runs and their ratio; what differs in what was measured comes first."""
    told = [
        f"not the same load: {name} was {before.get(name)}, is {now[name]}"
        for name in ("load", "sizeBytes", "offeredRate", "inFlight", "connections")
        if before.get(name) != now[name]
    ]
    told.append(f"{'':<20}{'before':>12}{'now':>12}{'ratio':>8}")
    for name, old, new in _pairs(before, now):
        ratio = f"{new / old:.2f}" if old else "-"
        told.append(f"{name:<20}{old:>12,.2f}{new:>12,.2f}{ratio:>8}")
    return told


def _pairs(before: dict[str, Any], now: dict[str, Any]) -> list[tuple[str, float, float]]:
    pairs = [("messages a second", before.get("messagesPerSecond", 0.0), now["messagesPerSecond"])]
    earlier = before.get("latencyMs", {})
    pairs += [
        (f"{name}, ms", earlier[name], ms) for name, ms in now.get("latencyMs", {}).items() if name in earlier
    ]
    return pairs


def picture(found: dict[str, Any], times: Latencies) -> str:
    """The histogram as SVG: a bar for each doubling of the time."""
    bars = times.doublings()
    most, wide, high = max(count for _, count in bars), 48, 220
    shapes = []
    for place, (below, count) in enumerate(bars):
        tall, left = count / most * high, 20 + place * wide
        middle = left + wide / 2 - 3
        box = f'x="{left}" y="{high + 40 - tall:.1f}" width="{wide - 6}" height="{tall:.1f}"'
        shapes += [
            f'<rect {box} fill="#3b6ea5"/>',
            f'<text x="{middle}" y="{high + 58}">{below:g}</text>',
            f'<text x="{middle}" y="{high + 34 - tall:.1f}">{count:,}</text>',
        ]
    rate = f"{found['messagesPerSecond']:,.0f}/s"
    title = escape(f"{found['load']}, {found['sizeBytes']} B, {rate}: messages by latency, below … ms")
    size = f'width="{max(520, 40 + len(bars) * wide)}" height="{high + 70}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11"'
        f' text-anchor="middle"><text x="20" y="16" font-size="13" text-anchor="start">{title}</text>'
        f"{''.join(shapes)}</svg>\n"
    )
