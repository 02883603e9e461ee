"""The page of the connector's options, made from their declarations.

python -m tools.spark_options    (writes docs/reference/spark-options.md)
"""

from collections.abc import Iterator

from tests.support.places import ROOT

from pyromq.config.options import Options, Setting
from pyromq.spark.options import Access, ReadOptions, WriteOptions

PAGE = ROOT / "docs" / "reference" / "spark-options.md"

_INTRODUCTION = """\
# Options of the Spark connector

Made from `src/pyromq/spark/options.py` by `make docs`; edit the declarations, not this page.

How to use them: [Spark](../howto/spark.md). Names are case-insensitive. An empty value counts as not given.
Unknown and contradictory options are errors that name them, before any job runs.
"""


def page() -> str:
    sections = {"For reading and writing": Access, "For reading": ReadOptions, "For writing": WriteOptions}
    return "\n".join(
        [_INTRODUCTION, *(line for title, part in sections.items() for line in _section(title, part))]
    )


def _section(title: str, part: type[Options]) -> Iterator[str]:
    yield from (f"## {title}", "", "| option | default | values | meaning |", "|---|---|---|---|")
    yield from map(_row, part.all_settings())
    yield ""


def _row(each: Setting) -> str:
    default = f"`{each.default_text}`" if each.default_text else ""
    limited = f"For {each.only} only. " if each.only else ""
    alias = f" `{each.alias}` is another name for it." if each.alias else ""
    cells = [
        f"`{each.key}`",
        default,
        each.expected.removesuffix(" or nothing"),
        limited + each.sentence + alias,
    ]
    shown = " | ".join(cell.replace("|", "\\|") for cell in cells)
    return f"| {shown} |"


if __name__ == "__main__":
    PAGE.write_text(page())
