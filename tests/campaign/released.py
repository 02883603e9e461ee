"""Servers of any version: each is the shipped program of an environment, with a settings file.

`environment_of` makes the environment of another version: of a revision of this repository, of wheels in a
directory, or of a release in the package index.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.campaign.network import Network
from tests.campaign.parties import Party, Program, Running
from tests.support.broker_cluster import configuration

from pyromq.config.options import Options
from pyromq.config.properties import render
from pyromq.controller.settings import ControllerSettings
from pyromq.nameserver.settings import NameServerSettings

ROOT = Path(__file__).parents[2]
THIS = Path(sys.executable).parent
"""The programs of the working tree."""
_PROGRAMS = {"namesrv": "mqnamesrv", "controller": "mqcontroller", "broker": "mqbroker"}


class ReleasedParty(Party):
    """`programs` can change between two starts: that is an upgrade."""

    def __init__(
        self, programs: Path, name: str, kind: str, directory: Path, network: Network, **settings: Any
    ) -> None:
        super().__init__(name, kind, directory, network, **settings)
        self.programs = programs

    async def _launch(self) -> Running:
        file = self.directory.parent / f"{self.name}.properties"
        file.write_text(render(_chosen(self.kind, self.directory, self.settings)))
        command = [str(self.programs / _PROGRAMS[self.kind]), "-c", str(file)]
        env = {"HOME": str(self.directory), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
        return await Program.start(command, _port(self.settings), self.log, env)


def _port(settings: Mapping[str, Any]) -> int:
    """A controller's is part of the addresses of all of them."""
    if "listen_port" in settings:
        return int(settings["listen_port"])
    peers = dict(each.split("-", 1) for each in settings["peers"].split(";"))
    return int(peers[settings["self_id"]].rpartition(":")[2])


def _chosen(kind: str, directory: Path, settings: Mapping[str, Any]) -> dict[str, str]:
    """What differs from the defaults, as a settings file has it."""
    parts: list[Options] = []
    if kind == "namesrv":
        parts.append(NameServerSettings(kv_config_path=directory / "kvConfig.json", **settings))
    elif kind == "controller":
        parts.append(ControllerSettings(store_path=directory / "controller", **settings))
    else:
        both = configuration(directory / "store", **settings)
        parts += [both.broker, both.store]
    values = ((each, part.value_of(each)) for part in parts for each in part.all_settings() if each.name)
    return {each.key: each.kind.render(value) for each, value in values if value not in (each.default, None)}


def environment_of(version: str, place: Path) -> Path:
    """The programs of that version: a revision, a directory of wheels, or a version in the package index."""
    environment = place / version.replace("/", "_")
    programs = environment / "bin"
    if (programs / "mqbroker").exists():
        return programs
    _run(sys.executable, "-m", "venv", str(environment))
    pip = [str(programs / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    if Path(version).is_dir():
        wheels = {wheel.name.split("-")[0]: wheel.name.split("-")[1] for wheel in Path(version).glob("*.whl")}
        _run(*pip, "--find-links", version, *(f"{name}=={number}" for name, number in wheels.items()))
    elif subprocess.run(
        ["git", "-C", str(ROOT), "cat-file", "-e", f"{version}^{{commit}}"], capture_output=True, check=False
    ).returncode:
        _run(*pip, f"pyromq=={version}", f"pyromq-native=={version}")
    else:
        with tempfile.TemporaryDirectory() as sources:
            archive = subprocess.run(
                ["git", "-C", str(ROOT), "archive", version], capture_output=True, check=True
            ).stdout
            subprocess.run(["tar", "-x", "-C", sources], input=archive, check=True)
            _run(*pip, "-c", f"{sources}/constraints.txt", sources, f"{sources}/native")
    return programs


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
