"""The files of `deploy/`: programs, options, settings, metrics and labels that they name exist."""

import configparser
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from tests.support.broker_cluster import Bench
from tests.support.controlled_brokers import controller
from tests.support.name_servers import name_server
from tests.support.places import ROOT

from pyromq.apps import broker, console, namesrv, proxy
from pyromq.apps import controller as controller_program
from pyromq.apps.pyromq import COMMANDS
from pyromq.broker.settings import BrokerSettings
from pyromq.config.settings import Settings
from pyromq.console.settings import ConsoleSettings
from pyromq.controller.settings import ControllerSettings
from pyromq.metrics import Metrics
from pyromq.nameserver.settings import NameServerSettings
from pyromq.protocol.frame import HeaderForm
from pyromq.proxy.settings import ProxySettings
from pyromq.store.settings import StoreSettings

DEPLOY = ROOT / "deploy"
SETTINGS: dict[str, list[type[Settings]]] = {
    "mqnamesrv": [NameServerSettings],
    "mqbroker": [BrokerSettings, StoreSettings],
    "mqcontroller": [ControllerSettings],
    "mqproxy": [ProxySettings],
    "console": [ConsoleSettings],
}
PROGRAMS = {
    "mqnamesrv": namesrv.command,
    "mqbroker": broker.command,
    "mqcontroller": controller_program.command,
    "mqproxy": proxy.command,
    "console": console.console,
}
PROMETHEUS_ADDS = {"job", "instance", "le"}


def check_call(program: str, arguments: list[str]) -> None:
    """The program takes these arguments, and its settings have these keys."""
    command = PROGRAMS[program]
    context = command.make_context(program, list(arguments), resilient_parsing=True)
    taken, _, _ = command.make_parser(context).parse_args(list(arguments))
    for assignment in taken["assignments"]:
        key, _, value = assignment.partition("=")
        found = [part.find(key) for part in SETTINGS[program]]
        known = next((each for each in found if each is not None), None)
        assert known is not None, f"{program} has no setting {key}"
        if "$" not in value:
            known.parse(value)


@pytest.mark.parametrize("unit", sorted(path.name for path in (DEPLOY / "systemd").glob("*.service")))
def test_a_unit_calls_a_program_with_options_and_settings_that_exist(unit: str) -> None:
    parsed = configparser.ConfigParser(interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read(DEPLOY / "systemd" / unit)
    assert set(parsed.sections()) == {"Unit", "Service", "Install"}
    program, *arguments = shlex.split(parsed["Service"]["ExecStart"])
    name = Path(program).name
    check_call(arguments.pop(0) if name == "pyromq" else name, arguments)


def test_every_server_has_a_unit() -> None:
    servers = {re.split("[-@.]", path.name)[1] for path in DEPLOY.glob("systemd/*")}
    assert servers == {"namesrv", "broker", "controller", "proxy", "console"}


def test_the_compose_file_calls_servers_with_options_and_settings_that_exist() -> None:
    compose = yaml.safe_load((DEPLOY / "container" / "compose.yaml").read_text())
    for service in compose["services"].values():
        name, *arguments = service["command"]
        assert name in COMMANDS.list_commands(click.Context(COMMANDS))
        check_call(f"mq{name}", arguments)
        volumes = {volume.partition(":")[0] for volume in service["volumes"]}
        assert volumes <= set(compose["volumes"])


def test_the_image_has_instructions_in_an_order_that_builds() -> None:
    text = (DEPLOY / "container" / "Containerfile").read_text().replace("\\\n", " ")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    assert [word for word, _ in lines if word == "FROM"] == ["FROM", "FROM"]
    known = {
        "ARG",
        "FROM",
        "COPY",
        "RUN",
        "USER",
        "WORKDIR",
        "VOLUME",
        "ENV",
        "EXPOSE",
        "STOPSIGNAL",
        "ENTRYPOINT",
    }
    assert {word for word, _ in lines} <= known | {"CMD"}
    assert "'pyromq[acl,console,grpc,oidc,otlp]'" in text, "the image is for every server"
    entry = json.loads(next(rest for word, rest in lines if word == "ENTRYPOINT"))
    assert entry == ["pyromq"]
    for key in re.findall(r"PYROMQ_NAMESRV_(\w+)=|PYROMQ_BROKER_(\w+)=", text):
        assert set(key) == {"LOG_DIR", ""}


# Metrics


@pytest.fixture
async def metrics(tmp_path: Path) -> dict[str, set[str]]:
    """The labels of every metric of broker, name server and controller, by its name."""
    async with (
        Bench(
            tmp_path / "broker",
            HeaderForm.JSON,
            metrics_exporter="PROM",
            metrics_port=0,
            tier_level="NOT_IN_DISK",
            tier_place=str(tmp_path / "tier"),
        ) as bench,
        name_server(tmp_path / "namesrv", metrics_port=0) as server,
        controller(tmp_path / "controller") as chooser,
    ):
        parts = bench.broker._parts
        assert parts is not None
        assert parts.metering is not None
        assert chooser._metering is not None
        return {
            **labels_of(parts.metering._metrics),
            **labels_of(server._metrics),
            **labels_of(chooser._metering.metrics),
            # A broker has these if it has a controller, or a certificate; tests/prometheus tries them.
            "pyromq_broker_in_sync_set": {"cluster", "node_id", "node_type"},
            "pyromq_certificate_end_seconds": set(),
            "process_cpu_seconds_total": set(),
            "process_resident_memory_bytes": set(),
            "up": set(),
        }


def labels_of(metrics: Metrics) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name, source in metrics._sources.items():
        labels = {*getattr(source, "label_names", ()), *metrics._labels}
        for suffix in ("", "_total", "_bucket", "_sum", "_count"):
            found[name + suffix] = labels
    return found


def check_expression(expression: str, metrics: Mapping[str, set[str]]) -> None:
    named = re.findall(
        r"\b((?:rocketmq|pyromq|process)_\w+|up|role|election_total)\b(?:\{([^}]*)\})?", expression
    )
    assert named, f"no metric in {expression}"
    known: set[str] = set()
    for name, selectors in named:
        assert name in metrics, f"no server has {name}"
        allowed = metrics[name] | PROMETHEUS_ADDS
        known |= allowed
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selectors):
            assert label in allowed, f"{name} has no label {label}"
    for labels in re.findall(r"\bby \(([^)]*)\)", expression):
        for label in re.split(r",\s*", labels):
            assert label in known, f"{expression} groups by {label}"


async def test_alert_rules_use_metrics_and_labels_that_exist(metrics: dict[str, set[str]]) -> None:
    (group,) = yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text())["groups"]
    assert len(group["rules"]) > 5
    for rule in group["rules"]:
        check_expression(rule["expr"], metrics)
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"}


def test_every_alert_has_a_case_in_which_it_fires() -> None:
    """Prometheus itself tries these cases: `make prometheus`."""
    (group,) = yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text())["groups"]
    cases = yaml.safe_load((ROOT / "tests" / "prometheus" / "rules_test.yml").read_text())["tests"]
    expected = [each for case in cases for each in case["alert_rule_test"]]
    fired = {each["alertname"] for each in expected if each["exp_alerts"]}
    assert fired == {rule["alert"] for rule in group["rules"]}


def test_alerts_see_the_first_event_of_its_kind() -> None:
    """A series that begins with 1 has no increase."""
    (group,) = yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text())["groups"]
    for rule in group["rules"]:
        counted = re.findall(r"increase\((\w+)", rule["expr"])
        known_from_the_start = {"pyromq_namesrv_broker_departures_total", "pyromq_refused_requests_total"}
        assert set(counted) <= known_from_the_start or " offset " in rule["expr"], rule["alert"]


async def test_the_dashboard_uses_metrics_and_labels_that_exist(metrics: dict[str, set[str]]) -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "pyromq.json").read_text())
    expressions = list(all_expressions(dashboard))
    assert len(expressions) > 15
    for expression in expressions:
        check_expression(expression, metrics)
    for variable in dashboard["templating"]["list"][1:]:
        metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]).groups()  # type: ignore[union-attr]
        assert label in metrics[metric]
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)


def all_expressions(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if "expr" in part:
            yield part["expr"]
        for below in part.values():
            yield from all_expressions(below)
    elif isinstance(part, list):
        for below in part:
            yield from all_expressions(below)
