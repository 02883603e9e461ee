"""mqadmin moves the queues of a static topic between two brokers."""

import json
import re
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pyromq.cli.mqadmin.tree import mqadmin
from pyromq.testing import cluster

TOPIC = "orders"


def test_queues_move_by_a_plan_that_was_shown_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "plans"))
    with cluster(tmp_path / "cluster", brokers=2) as running:

        def run(*words: str) -> Result:
            environment = {"NAMESRV_ADDR": running.namesrv}
            return CliRunner().invoke(mqadmin, [*words, "--timeout", "60"], env=environment)

        def leaders(*words: str) -> list[str]:
            done = run(*words, "-t", TOPIC, "--json")
            assert done.exit_code == 0, done.output
            return [each["brokerName"] for each in json.loads(done.stdout)["queues"]]

        both = ["broker-a", "broker-b"]
        assert leaders("updateStaticTopic", "-qn", "4", "-c", "DefaultCluster") == both * 2
        planned = run("remappingStaticTopic", "-t", TOPIC, "-b", "broker-b", "--plan")
        assert "Nothing is changed yet." in planned.stdout
        after = re.search(r"new mapping data is written to file (\S+\.after)", planned.stderr)
        assert after is not None
        assert leaders("remappingStaticTopic", "-b", "broker-a,broker-b", "-mf", after[1]) == ["broker-b"] * 4
        again = run("remappingStaticTopic", "-t", TOPIC, "-b", "broker-b")
        assert (again.exit_code, "lead all queues of orders already" in again.stderr) == (1, True)
        assert leaders("remappingStaticTopic", "-b", "broker-a") == ["broker-a"] * 4
        stale = run("remappingStaticTopic", "-t", TOPIC, "-mf", after[1])
        assert (stale.exit_code, "is older than" in stale.stderr) == (1, True)
