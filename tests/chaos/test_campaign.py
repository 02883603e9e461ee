"""A short round of `make chaos` with each cluster: nothing that was acknowledged is lost."""

import sys
from pathlib import Path

import pytest
from tests.campaign.clusters import KINDS
from tests.campaign.report import json_line, plot, round_text, summary
from tests.campaign.rounds import run_round

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells whose a connection is")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_cluster_keeps_what_it_acknowledged_whatever_breaks(kind: str, tmp_path: Path) -> None:
    result = await run_round(7, kind, tmp_path / "round", seconds=4)
    assert result.verdict.violations == {}
    assert result.verdict.acknowledged > 0
    assert len(result.history.faults) == len(result.planned) > 0
    assert "lost 0" in round_text(result)
    assert KINDS[kind].what in summary([result])
    assert json_line(result).startswith("{")
    plot([result], tmp_path / "availability.png")
    assert (tmp_path / "availability.png").stat().st_size > 1000
