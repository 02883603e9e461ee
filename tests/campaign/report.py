"""What a campaign found, for people: a text, a line of JSON for each round, and a plot of availability."""

import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from tests.campaign.checker import PAUSE_S, gap_of_fault, gaps_of
from tests.campaign.clusters import KINDS
from tests.campaign.history import Fault
from tests.campaign.rounds import Round

_SHOWN = 5
_BIN_S = 0.5
_PLOTTED = 30
"""Rounds in a plot: the last ones."""


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
        f" not acknowledged {verdict.unacknowledged}; delivered twice {verdict.delivered_twice}",
        f"  longest gap {verdict.longest_gap.seconds:.2f} s, without service {verdict.unavailable_s:.1f} of"
        f" {history.ended:.1f} s",
    ]
    for fault, gap in zip(history.faults, gaps_of_faults(result), strict=True):
        lines.append(f"  {fault.began:6.1f} s  {fault.name}: {gap:.2f} s")
    return "\n".join(lines)


def gaps_of_faults(result: Round) -> list[float]:
    """For each fault the longest time without an acknowledgement around it."""
    acknowledged = [sent for sent in result.history.sent if sent.offset is not None]
    gaps = list(gaps_of(acknowledged, result.history.ended))
    return [gap_of_fault(fault, gaps) for fault in result.history.faults]


def summary(rounds: Sequence[Round]) -> str:
    """All rounds of each kind of cluster together."""
    lines = []
    for kind in dict.fromkeys(each.kind for each in rounds):
        some = [each for each in rounds if each.kind == kind]
        verdicts = [each.verdict for each in some]
        broken = Counter[str]()
        for verdict in verdicts:
            broken.update({name: len(found) for name, found in verdict.violations.items()})
        loaded_s = sum(each.history.ended for each in some)
        away_s = sum(verdict.unavailable_s for verdict in verdicts)
        lines += [
            f"{kind}: {KINDS[kind].what}",
            f"  {len(some)} rounds, {sum(len(each.history.faults) for each in some)} faults in"
            f" {loaded_s / 60:.1f} minutes of load",
            f"  {sum(verdict.acknowledged for verdict in verdicts)} messages acknowledged,"
            f" {sum(len(verdict.lost) for verdict in verdicts)} lost;"
            f" {sum(verdict.delivered_twice for verdict in verdicts)} delivered twice",
            f"  without service (no acknowledgement for {PAUSE_S:g} s)"
            f" {100 * away_s / max(loaded_s, 1):.1f} % of the time; longest gap"
            f" {max(v.longest_gap.seconds for v in verdicts):.2f} s",
            f"  violations: {dict(broken) or 'none'}",
            "  gap between acknowledgements around a fault, in s:    number  median  longest",
        ]
        by_name: dict[str, list[float]] = defaultdict(list)
        for each in some:
            for fault, gap in zip(each.history.faults, gaps_of_faults(each), strict=True):
                by_name[_name_of(fault)].append(gap)
        for name, gaps in sorted(by_name.items(), key=lambda item: -max(item[1])):
            lines.append(f"    {name:<50} {len(gaps):>6} {statistics.median(gaps):>7.2f} {max(gaps):>8.2f}")
    return "\n".join(lines)


def _name_of(fault: Fault) -> str:
    """A fault without its numbers: `kill broker1 for 3 s` is a `kill broker1`."""
    return fault.name.partition(" by ")[0].partition(" for ")[0]


def json_line(result: Round) -> str:
    verdict = result.verdict
    return json.dumps(
        {
            "seed": result.seed,
            "cluster": result.kind,
            "acknowledged": verdict.acknowledged,
            "half_or_timed": verdict.decided,
            "unacknowledged": verdict.unacknowledged,
            "delivered_twice": verdict.delivered_twice,
            "longest_gap_s": round(verdict.longest_gap.seconds, 3),
            "unavailable_s": round(verdict.unavailable_s, 3),
            "loaded_s": round(result.history.ended, 1),
            "violations": verdict.violations,
            "faults": [
                (fault.name, round(gap, 3))
                for fault, gap in zip(result.history.faults, gaps_of_faults(result), strict=True)
            ],
        }
    )


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
            axes.text(fault.began, 0, _name_of(fault), fontsize=6, rotation=90, verticalalignment="bottom")
        verdict = f"lost {len(each.verdict.lost)}, longest gap {each.verdict.longest_gap.seconds:.1f} s"
        axes.set_title(f"{each.kind}, seed {each.seed}: {verdict}", fontsize=8, loc="left")
        axes.set(xlim=(0, each.history.ended), ylabel="ack/s")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
