"""A short round of the part of `make chaos` about access control: nobody gets more than the rules say."""

from pathlib import Path

import pytest
from tests.campaign.access import run_round


@pytest.mark.timeout(300)
async def test_nobody_gets_more_than_the_rules_say(tmp_path: Path) -> None:
    done = await run_round(6, tmp_path, steps=10)
    assert done["changes of rights"] > 0
    assert done["requests of the administrator"] > 400
