"""A short round of `make chaos` with each cluster: nothing that was acknowledged is lost."""

import json
import sys
from pathlib import Path

import pytest
from tests.campaign.clusters import COMMON_KINDS, KINDS
from tests.campaign.report import as_row, plot, round_text, summary
from tests.campaign.rounds import run_failovers, run_round

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells whose a connection is")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", COMMON_KINDS)
async def test_a_cluster_keeps_what_it_acknowledged_whatever_breaks(kind: str, tmp_path: Path) -> None:
    result = await run_round(7, kind, tmp_path / "round", seconds=4)
    assert result.verdict.violations == {}
    assert result.verdict.acknowledged > 0
    assert len(result.history.faults) == len(result.planned) > 0
    assert "lost 0" in round_text(result)
    assert KINDS[kind].what in summary([json.loads(json.dumps(as_row(result)))])
    plot([result], tmp_path / "availability.png")
    assert (tmp_path / "availability.png").stat().st_size > 1000


@pytest.mark.timeout(300)
async def test_a_group_survives_its_masters_one_after_the_other(tmp_path: Path) -> None:
    result = await run_failovers(7, "group", tmp_path / "round", times=2)
    assert result.verdict.violations == {}
    assert [fault.name for fault in result.history.faults] == ["kill master"] * 2
    assert " 2 " in summary([as_row(result)]).splitlines()[-1]
