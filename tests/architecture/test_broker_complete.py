"""The broker answers everything addressed to it, or says why not; its services do not know each other."""

import ast
from pathlib import Path

import pytest
from tests.support.broker_cluster import running_broker

from pyromq.broker.unserved import NOT_ON_THE_FAST_PORT, UNSERVED, WITHOUT_CONTROLLER
from pyromq.protocol.catalogue import BROKER, CATALOGUE
from pyromq.protocol.requests.undeclared import UNDECLARED

SERVICES = Path(__file__).parents[2] / "src" / "pyromq" / "broker" / "services"
SERVICE_FILES = sorted(path for path in SERVICES.glob("*.py") if path.stem != "__init__")


async def test_every_request_to_a_broker_is_served_or_declined(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        assert broker.routes.missing() == []
        addressed = {code for code, declaration in CATALOGUE.items() if declaration.to & BROKER}
        assert broker.routes.by_code.keys() | UNSERVED.keys() | WITHOUT_CONTROLLER.keys() == addressed


async def test_codes_that_only_apache_knows_are_declined_with_their_reason(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        assert broker.routes.unserved.items() >= UNDECLARED.items()


def test_whatever_is_declined_has_a_reason() -> None:
    for code, reason in (UNSERVED | NOT_ON_THE_FAST_PORT).items():
        assert CATALOGUE[code].to & BROKER
        assert len(reason.split()) > 2, f"{code}: {reason!r}"


@pytest.mark.parametrize("path", SERVICE_FILES, ids=lambda path: path.stem)
def test_a_service_imports_no_other_service(path: Path) -> None:
    imported: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            imported |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
        elif isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
    assert not {name for name in imported if name.startswith("pyromq.broker.services")}
    assert not {name for name in imported if name.startswith("pyromq.broker.broker")}
