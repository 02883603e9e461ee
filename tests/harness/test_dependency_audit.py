"""An audit that looked up nothing has not found that nothing is wrong."""

from typing import Any

from tools.dependency_audit import CLEAN, UNKNOWN, WEAK, verdict

FINE: dict[str, Any] = {"name": "click", "version": "8.5.1", "vulns": []}
WEAK_ONE: dict[str, Any] = {
    "name": "h11",
    "version": "0.1",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["0.2"]}],
}
SKIPPED: dict[str, Any] = {"name": "anyio", "skip_reason": "not found"}


def test_only_what_was_looked_up_counts_as_clean() -> None:
    assert verdict({"dependencies": [FINE]}, 1)[0] == CLEAN
    assert verdict({"dependencies": [FINE, SKIPPED]}, 2)[0] == UNKNOWN
    assert verdict({}, 2) == (UNKNOWN, ["the audit could not run: 0 of 2 dependencies could be looked up"])


def test_a_weakness_is_told_with_the_version_that_mends_it() -> None:
    assert verdict({"dependencies": [SKIPPED, WEAK_ONE]}, 2) == (WEAK, ["h11 0.1: PYSEC-1, mended in 0.2"])
