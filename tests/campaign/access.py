"""The part of `make chaos` about access control: whoever asks for what, nobody gets more than the rules say.

    python -m tests.campaign.access [--minutes M] [--steps S] [--seed N]

A round has its own servers. Callers with all rights, few and none send hostile requests of every code, in an
order that follows from the seed. In between rights are given and taken away, and a connection that has just
been served is refused at once, and the other way round. Those with rights come last, and the servers still
know who may do what.
"""

import asyncio
import logging
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

from tests.support.access import ALICE, ROOT, client, grant, is_refused
from tests.support.broker_cluster import BrokerClient, message
from tests.support.guarded_servers import UNKNOWN, guarded_servers
from tests.support.loop import FASTEST_LOOP
from tools.rounds import Rounds, options

from pyromq.protocol.requests.access import DeleteAcl

_UNIQUE = {"UNIQ_KEY": "7F00000100002A9F000000000000AC01"}
"""A message with a unique key may take the fast path."""


async def run_round(seed: int, directory: Path, steps: int) -> Counter[str]:
    """What was done, and how often; AssertionError if somebody got more, or less, than their rights."""
    chance, done = Random(seed), Counter[str]()
    async with guarded_servers(directory) as servers:
        address = servers.doors[0].address
        async with client(address, ROOT) as root, client(address, ALICE) as alice:
            for _ in range(steps):
                if chance.random() < 0.3:
                    await _change_rights(root, alice)
                    done["changes of rights"] += 2
                else:
                    caller = chance.choice((*UNKNOWN, "user"))
                    done[f"requests of the {caller}"] += await servers.attack(chance, caller)
        for caller in (*["customer"] * (steps // 4), *["administrator"] * 3, *UNKNOWN, "user"):
            done[f"requests of the {caller}"] += await servers.attack(chance, caller)
    return done


async def _change_rights(root: BrokerClient, alice: BrokerClient) -> None:
    """Both ways, on connections that are known: what was granted is gone with the answer to the change."""
    assert await is_refused(alice, message(topic="Orders", properties=_UNIQUE))
    await root.call(grant(ALICE, "Pub on Topic:Orders"))
    for _ in range(3):
        await alice.send(topic="Orders", properties=_UNIQUE)
    assert await is_refused(alice, message(topic="Secrets", properties=_UNIQUE))
    await root.call(DeleteAcl(subject=f"User:{ALICE.access_key}"))
    assert await is_refused(alice, message(topic="Orders", properties=_UNIQUE))


def main(arguments: Sequence[str]) -> int:
    parser = options("access", __doc__, minutes=2)
    parser.add_argument("--steps", type=int, default=100, help="how many attacks and changes a round has")
    chosen = parser.parse_args(arguments)
    logging.disable(logging.ERROR)  # every refusal is a warning
    (new_loop,) = FASTEST_LOOP.values()
    total: Counter[str] = Counter()

    def one_round(seed: int) -> int:
        with tempfile.TemporaryDirectory() as directory, asyncio.Runner(loop_factory=new_loop) as runner:
            total.update(runner.run(run_round(seed, Path(directory), chosen.steps)))
        return 0

    again = f"python -m tests.campaign.access --minutes 0 --steps {chosen.steps} --seed"
    rounds = Rounds("access", chosen, lambda seed: f"{again} {seed}")
    rounds.run(one_round)
    return rounds.report(", ".join(f"{n:,} {what}" for what, n in total.items()))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
