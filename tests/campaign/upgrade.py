"""`make upgrade`: two versions in one cluster, and the way from one to the other and back, under load.

    python -m tests.campaign.upgrade --from VERSION

VERSION is a revision of this repository, a directory with wheels, or a release in the package index; the
other version is the working tree. Each round has three brokers under a controller and a name server, and
the load and the checks of `make chaos`:

- *up*: all servers change to the working tree, one by one: name servers, controllers, replicas, the master.
- *back*: the same from the working tree to VERSION, on the same directories.
- *mixed*: two brokers of one version and one of the other; masters are killed, so that each version leads
  and follows.

At the end of the rounds *up* and *back*, command-line clients of the other version send and read messages.
"""

import argparse
import asyncio
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.campaign.clusters import KINDS, Cluster
from tests.campaign.failovers import fail_over
from tests.campaign.history import Fault
from tests.campaign.load import Load
from tests.campaign.released import THIS, ReleasedParty, environment_of
from tests.campaign.report import round_text
from tests.campaign.rounds import run_breaking
from tests.support.loop import FASTEST_LOOP
from tools.rounds import say

_KIND = replace(KINDS["group"], is_relayed=False)
_KILLS = 6
_CLIENT_S = 120.0
_MESSAGES = 100
_CLIENT_TOPIC = "Greetings"


async def _replace_all(cluster: Cluster, load: Load, new: Path, old: Path) -> None:
    """In the order of the upgrade page: the master last."""
    for name in (*cluster.shape.name_servers, *cluster.shape.controllers):
        await _replace(cluster, load, name, new)
    left = list(cluster.shape.brokers)
    while left:
        master = await cluster.wait_in_sync()
        name = next((each for each in left if each != master), master)
        left.remove(name)
        await _replace(cluster, load, name, new)
    await cluster.wait_in_sync()
    await asyncio.to_thread(_try_clients, old, cluster.namesrv)


async def _replace(cluster: Cluster, load: Load, name: str, programs: Path) -> None:
    party, began = cluster.parties[name], load.now
    assert isinstance(party, ReleasedParty)
    await party.stop()
    party.programs = programs
    await party.start()
    await load.wait_acknowledged(2)  # One may have been on its way.
    load.history.faults.append(Fault(f"replace {name}", began, load.now))


async def _kill_masters(cluster: Cluster, load: Load, programs: Path) -> None:
    await cluster.wait_in_sync()
    await _replace(cluster, load, cluster.shape.brokers[-1], programs)
    await fail_over(cluster, load, _KILLS, seed=1)


def _try_clients(programs: Path, namesrv: str) -> None:
    """Command-line clients send and read."""
    lines = "".join(f"{number}\n" for number in range(_MESSAGES))

    def pyromq(*arguments: str) -> str:
        return subprocess.run(
            [str(programs / "pyromq"), *arguments, "-n", namesrv],
            input=lines,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=_CLIENT_S,
        ).stdout

    pyromq("produce", _CLIENT_TOPIC)
    got = pyromq("consume", _CLIENT_TOPIC, "--count", str(_MESSAGES))
    if sorted(got.split()) != sorted(lines.split()):
        raise AssertionError(f"clients of {programs} sent {_MESSAGES} messages and read {got!r}")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="upgrade", description=__doc__)
    parser.add_argument("--from", dest="version", required=True, help="the other version")
    parser.add_argument("--out", type=Path, default=Path("build/upgrade"))
    chosen = parser.parse_args(arguments)
    out = chosen.out.absolute()
    say(f"upgrade: installing {chosen.version}")
    other = environment_of(chosen.version, out)
    rounds = {
        "up": (other, partial(_replace_all, new=THIS, old=other)),
        "back": (THIS, partial(_replace_all, new=other, old=THIS)),
        "mixed": (other, partial(_kill_masters, programs=THIS)),
        "mixed, the other way round": (THIS, partial(_kill_masters, programs=other)),
    }
    (new_loop,) = FASTEST_LOOP.values()
    for number, (name, (first, breaking)) in enumerate(rounds.items()):
        say(f"upgrade: {name}")
        directory = out / f"round-{number}"
        shutil.rmtree(directory, ignore_errors=True)
        kind = replace(_KIND, party=partial(ReleasedParty, first))
        with asyncio.Runner(loop_factory=new_loop) as runner:
            done = runner.run(run_breaking(number, name, kind, directory, [], breaking))
        say(round_text(done))
        if not done.is_clean:
            return 1
        shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
