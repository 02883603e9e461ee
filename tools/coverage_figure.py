"""How much of the source unit and property tests run, as a sentence in CONTRIBUTING.md.

python -m tools.coverage_figure build/coverage/figures.json    (`make coverage` does so)
"""

import json
import re
import sys
from collections import defaultdict
from datetime import date
from pathlib import Path

from tests.support.places import ROOT

PAGE = ROOT / "CONTRIBUTING.md"
FIGURE = re.compile(r"(?<=<!-- `make coverage` writes this -->\n).*?(?=\n<!-- until here -->)", re.DOTALL)


def sentence(measured: dict[str, tuple[int, int]], day: date) -> str:
    """`measured` has for each file the statements that were run, and all of them."""
    packages: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for path, figures in measured.items():
        below = path.removeprefix("src/pyromq/")
        if "/" in below:
            packages[below.partition("/")[0]].append(figures)
    shares = {name: _percent(figures) for name, figures in packages.items()}
    parts = ", ".join(
        f"`{name}` {shares[name]} %" for name in sorted(shares, key=lambda name: (-shares[name], name))
    )
    everything = list(measured.values())
    statements = sum(total for _, total in everything)
    return (
        f"On {day}, unit and property tests alone ran {_percent(everything)} % of the "
        f"{statements:,} statements of `src/pyromq`. By package: {parts}."
    )


def _percent(figures: list[tuple[int, int]]) -> int:
    """Rounded down."""
    return 100 * sum(run for run, _ in figures) // max(1, sum(total for _, total in figures))


def main() -> None:
    files = json.loads(Path(sys.argv[1]).read_text())["files"]
    measured = {
        path: (each["summary"]["covered_lines"], each["summary"]["num_statements"])
        for path, each in files.items()
    }
    text = sentence(measured, date.today())
    PAGE.write_text(FIGURE.sub(lambda _: text, PAGE.read_text()))
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    main()
