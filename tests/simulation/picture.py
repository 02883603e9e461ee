"""A picture of a run: who was master when, what was broken, and the acknowledgements over virtual time.

python -m tests.simulation.picture PLAN.json > run.svg
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.simulation.plans import Plan
from tests.simulation.recording import Outcome
from tests.simulation.runs import run_forked

_WIDTH, _LEFT, _LANE, _BARS = 900, 50, 34, 80
_BAR_S = 0.5
_STYLE = (
    "text{font:12px sans-serif;fill:#777}.lane{fill:#8883}.master{fill:#2a9d8f}.fault{fill:#e76f51}"
    ".bar{fill:#457b9d}.broken{fill:#d00000}.in{fill:#fff}"
)
_FAULT = re.compile(r"(.+) (\w+) for ([\d.]+) s")


class Span(NamedTuple):
    kind: str
    name: str
    began_s: float
    ended_s: float
    text: str


def masters(outcome: Outcome) -> Iterator[Span]:
    """Each until the next one."""
    found = [(event.at_s, event.text.split()[0]) for event in outcome.events if event.kind == "master"]
    ends = [at_s for at_s, _ in found[1:]] + [outcome.totals.virtual_s]
    for (began_s, name), ended_s in zip(found, ends, strict=True):
        yield Span("master", name, began_s, ended_s, "master")


def faults(outcome: Outcome) -> Iterator[Span]:
    for event in outcome.events:
        if event.kind == "fault" and (found := _FAULT.fullmatch(event.text)) is not None:
            what, name, seconds = found.groups()
            ended_s = min(event.at_s + float(seconds), outcome.totals.virtual_s)
            yield Span("fault", name, event.at_s, ended_s, what.strip())


def picture(outcome: Outcome) -> str:
    """An SVG: a lane for each broker, and below them the acknowledgements of each half second."""
    end_s = max(outcome.totals.virtual_s, 1.0)
    spans = [*masters(outcome), *faults(outcome)]
    names = sorted({span.name for span in spans})
    spans = [Span("lane", name, 0.0, end_s, "") for name in names] + spans
    scale = (_WIDTH - _LEFT - 10) / end_s
    bottom = len(names) * _LANE + _BARS
    parts = [f'<text x="4" y="{number * _LANE + 22}">{name}</text>' for number, name in enumerate(names)]
    for span in spans:
        inset = 8 if span.kind == "fault" else 4
        x, y = _LEFT + span.began_s * scale, names.index(span.name) * _LANE + inset
        width = max((span.ended_s - span.began_s) * scale, 2.0)
        parts.append(_box(span.kind, x, y, width, _LANE - 2 * inset, span.text))
        if span.text and width > 7 * len(span.text):
            parts.append(f'<text class="in" x="{x + 4:.1f}" y="{y + 22 - inset}">{span.text}</text>')
    counts = Counter(int(at_s / _BAR_S) for at_s in outcome.acknowledgements)
    highest = max(counts.values(), default=1)
    for number, count in sorted(counts.items()):
        height = (_BARS - 15) * count / highest
        x = _LEFT + number * _BAR_S * scale
        parts.append(_box("bar", x, bottom - height, max(_BAR_S * scale - 0.5, 0.5), height, f"{count}"))
    for violation in outcome.violations:
        x = _LEFT + violation.at_s * scale
        parts.append(_box("broken", x, 0, 2, bottom, violation.invariant))
    step_s = 10 if end_s > 30 else 5
    parts += [
        f'<text x="{_LEFT + at_s * scale:.1f}" y="{bottom + 16}">{at_s} s</text>'
        for at_s in range(0, int(end_s) + 1, step_s)
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {bottom + 22}" role="img">'
        f"<style>{_STYLE}</style>{''.join(parts)}</svg>\n"
    )


def _box(kind: str, x: float, y: float, width: float, height: float, text: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="{kind}" {place}><title>{text}</title></rect>'


if __name__ == "__main__":
    sys.stdout.write(picture(run_forked(Plan.from_json(Path(sys.argv[1]).read_bytes()))))
