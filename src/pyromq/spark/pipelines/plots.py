"""Pictures in files: PNG or SVG, or a page of HTML with the picture and its table inside."""

import html
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".html")

mpl.rcParams["svg.fonttype"] = "none"


def plot_latencies(
    curves: Mapping[str, Sequence[float]], path: Path, table: Sequence[Sequence[str]] = ()
) -> None:
    """For each name the percentiles from 0 to 100: how many messages were consumed after how long."""
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    for name, boundaries in curves.items():
        axes.step([max(each, 0.1) for each in boundaries], range(len(boundaries)), where="post", label=name)
    axes.set(xscale="log", xlabel="ms from send to consume", ylabel="% of messages", ylim=(0, 101))
    axes.set_title("Latency by topic and group")
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend(loc="lower right")
    save(figure, path, table)


def save(figure: Figure, path: Path, table: Sequence[Sequence[str]] = ()) -> None:
    """Write what the name asks for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".html":
        path.write_text(_page(figure, table), encoding="utf-8")
    else:
        figure.savefig(path, dpi=120)


def _page(figure: Figure, table: Sequence[Sequence[str]]) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg")
    picture = buffer.getvalue()
    rows = "\n".join(
        f"<tr>{''.join(f'<{tag}>{html.escape(each)}</{tag}>' for each in row)}</tr>"
        for row, tag in zip(table, ["th", *["td"] * len(table)], strict=False)
    )
    return f"""<!doctype html>
<meta charset="utf-8">
<title>{html.escape(figure.axes[0].get_title())}</title>
<style>body {{ font-family: sans-serif }} td, th {{ padding: 0 1em; text-align: right }}</style>
{picture[picture.index("<svg") :]}
<table>
{rows}
</table>
"""
