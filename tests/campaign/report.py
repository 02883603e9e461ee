"""What a campaign found, for people: a text, a row for each round, and a plot of availability."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.campaign.checker import LOST, PAUSE_S, gap_of_fault, gaps_of
from tests.campaign.clusters import KINDS
from tests.campaign.history import Fault
from tests.campaign.rounds import Round

_SHOWN = 5
_BIN_S = 0.5
_PLOTTED = 30
"""Rounds in a plot: the last ones."""

Row = dict[str, Any]


def round_text(result: Round) -> str:
    """One round in a few lines; violations first."""
    verdict, history = result.verdict, result.history
    lines = []
    for kind, sentences in verdict.violations.items():
        lines.append(f"  VIOLATION, {kind}: {len(sentences)}")
        lines += [f"    {sentence}" for sentence in sentences[:_SHOWN]]
    lines += [
        f"  acknowledged {verdict.acknowledged} and {verdict.decided} half or timed ones,"
        f" lost {len(verdict.lost)}, out of order {len(verdict.disordered)};"
        f" not acknowledged {verdict.unacknowledged}; delivered twice {_twice(verdict.twice)}",
        f"  longest gap {verdict.longest_gap.seconds:.2f} s, without service {verdict.unavailable_s:.1f} of"
        f" {history.ended:.1f} s",
    ]
    lines += [f"  {gap.began:6.1f} s  no acknowledgement for {gap.seconds:.2f} s" for gap in verdict.gaps]
    for fault, gap in zip(history.faults, gaps_of_faults(result), strict=True):
        lines.append(f"  {fault.began:6.1f} s  {fault.name}: {gap:.2f} s")
    return "\n".join(lines)


def gaps_of_faults(result: Round) -> list[float]:
    """For each fault the longest time without an acknowledgement around it."""
    acknowledged = [sent for sent in result.history.sent if sent.offset is not None]
    gaps = list(gaps_of(acknowledged, result.history.ended))
    return [gap_of_fault(fault, gaps) for fault in result.history.faults]


def as_row(result: Round) -> Row:
    """What is kept of a round: the totals of many campaigns are made of this."""
    verdict, faults = result.verdict, result.history.faults
    return {
        "seed": result.seed,
        "cluster": result.kind,
        "acknowledged": verdict.acknowledged,
        "delivered": len(result.history.delivered),
        "half_or_timed": verdict.decided,
        "unacknowledged": verdict.unacknowledged,
        "delivered_twice": dict(verdict.twice),
        "longest_gap_s": round(verdict.longest_gap.seconds, 3),
        "unavailable_s": round(verdict.unavailable_s, 3),
        "loaded_s": round(result.history.ended, 1),
        "violations": verdict.violations,
        "faults": [
            (_name_of(fault, faults), round(gap, 3))
            for fault, gap in zip(faults, gaps_of_faults(result), strict=True)
        ],
    }


def summary(rows: Sequence[Row]) -> str:
    """All rounds of each kind of cluster together."""
    lines = []
    for kind in dict.fromkeys(row["cluster"] for row in rows):
        some = [row for row in rows if row["cluster"] == kind]
        broken = Counter[str]()
        for row in some:
            broken.update({name: len(found) for name, found in row["violations"].items()})
        loaded_s = sum(row["loaded_s"] for row in some)
        away_s = sum(row["unavailable_s"] for row in some)
        lines += [
            f"{kind}: {KINDS[kind].what}",
            f"  {len(some)} rounds, {sum(len(row['faults']) for row in some)} faults in"
            f" {loaded_s / 60:.1f} minutes of load",
            f"  {sum(row['acknowledged'] for row in some)} messages acknowledged,"
            f" {broken[LOST]} lost;"
            f" delivered twice {_twice(sum((Counter(row['delivered_twice']) for row in some), Counter()))}",
            f"  without service (no acknowledgement for {PAUSE_S:g} s)"
            f" {100 * away_s / max(loaded_s, 1):.1f} % of the time; longest gap"
            f" {max(row['longest_gap_s'] for row in some):.2f} s",
            f"  violations: {dict(broken) or 'none'}",
            "  gap between acknowledgements around a fault, in s:    number  median    90 %    99 %  longest"
            f"  within {PAUSE_S:g} s",
        ]
        by_name: dict[str, list[float]] = defaultdict(list)
        for row in some:
            for name, gap in row["faults"]:
                by_name[name].append(gap)
        for name, gaps in sorted(by_name.items(), key=lambda item: -max(item[1])):
            shares = "".join(f" {_below(gaps, share):>7.2f}" for share in (0.5, 0.9, 0.99))
            short = sum(gap < PAUSE_S for gap in gaps)
            lines.append(f"    {name:<50} {len(gaps):>6}{shares} {max(gaps):>8.2f} {short:>11}")
    return "\n".join(lines)


def _twice(causes: Counter[str]) -> str:
    shown = ", ".join(f"{count} {cause}" for cause, count in sorted(causes.items()))
    return f"{causes.total()} ({shown})" if shown else "0"


def _below(gaps: Sequence[float], share: float) -> float:
    """So long is the longest of this share of the gaps."""
    return sorted(gaps)[max(0, math.ceil(share * len(gaps)) - 1)]


def _name_of(fault: Fault, faults: Sequence[Fault]) -> str:
    """A fault without its numbers: `kill broker1 for 3 s` is a `kill broker1`. One that another one overlaps
    is a different thing: of three brokers, two are away."""
    name = fault.name.partition(" by ")[0].partition(" for ")[0]
    others = (each for each in faults if each is not fault)
    is_alone = all(each.ended <= fault.began or each.began >= fault.ended for each in others)
    return name if is_alone else f"{name} and more"


def plot(rounds: Sequence[Round], path: Path) -> None:
    """Acknowledgements per second over the time of all rounds, one line for each; faults are shaded."""
    from matplotlib.figure import Figure  # here: a second that only this costs

    rows = rounds[-_PLOTTED:]
    figure = Figure(figsize=(12, 1.4 * len(rows) + 0.8), layout="constrained")
    for axes, each in zip(figure.subplots(len(rows), squeeze=False)[:, 0], rows, strict=True):
        bins = Counter(int(sent.ended / _BIN_S) for sent in each.history.sent if sent.offset is not None)
        count = int(each.history.ended / _BIN_S) + 1
        rates = [bins[number] / _BIN_S for number in range(count)]
        axes.fill_between([number * _BIN_S for number in range(count)], rates, step="post", color="tab:green")
        for fault in each.history.faults:
            axes.axvspan(fault.began, max(fault.ended, fault.began + 0.2), color="tab:red", alpha=0.25)
            name = _name_of(fault, each.history.faults)
            axes.text(fault.began, 0, name, fontsize=6, rotation=90, verticalalignment="bottom")
        verdict = f"lost {len(each.verdict.lost)}, longest gap {each.verdict.longest_gap.seconds:.1f} s"
        axes.set_title(f"{each.kind}, seed {each.seed}: {verdict}", fontsize=8, loc="left")
        axes.set(xlim=(0, each.history.ended), ylabel="ack/s")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
