"""`make chaos`, the day of an operator: what runbooks say is done to the example of deploy/ha, under load.

    python -m tests.campaign.dayone [--minutes M]

Two name servers, a controller and three brokers with TLS and access control, started from the files of
deploy/ha; forty messages a second. Each operation begins when the one before has healed. They are repeated
until the minutes are over. In the end a group must have got every message that was acknowledged.
"""

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from secrets import token_urlsafe
from typing import Any

from tests.support.ha_example import ha_example, load
from tools.rounds import say

from pyromq import Message, Producer, PushConsumer, PyroError, ReceivedMessage, TlsOptions

EXAMPLE = load()
SPARE, CLUSTER, TOPIC, GROUP = EXAMPLE.SPARE, EXAMPLE.CLUSTER, EXAMPLE.TOPIC, EXAMPLE.GROUP
_PAUSE_S = 0.025
_HEAL_S = 120.0
_LOOK_S = 0.2


class Shop:
    """Sends and reads as the user of the example; what it saw is in its counters."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self._is_over = threading.Event()
        self.acknowledged: set[bytes] = set()
        self.got: Counter[bytes] = Counter()
        self.refused = 0
        self.longest_gap_s = 0.0
        self._last_s = time.monotonic()

    def _access(self) -> dict[str, Any]:
        return {
            "namesrv": self._cluster.name_servers,
            "key_file": self._cluster.keys("shop"),
            "tls": TlsOptions(verify=True, trust_path=self._cluster.authority),
        }

    @contextmanager
    def open(self) -> Iterator[None]:
        consumer = PushConsumer(GROUP, start_from="first", rebalance_interval_s=2.0, **self._access())
        consumer.subscribe(TOPIC, "*", self._take)
        with consumer, Producer("tills", **self._access()) as producer:
            sending = threading.Thread(target=self._send, args=[producer])
            sending.start()
            try:
                yield
            finally:
                self._is_over.set()
                sending.join()
            self.wait(lambda: self.acknowledged <= self.got.keys(), "every acknowledged message is read")

    def _take(self, message: ReceivedMessage) -> None:
        self.got[message.body] += 1

    def _send(self, producer: Producer) -> None:
        number = 0
        while not self._is_over.wait(_PAUSE_S):
            body = b"%d" % number
            number += 1
            try:
                is_safe = producer.send(Message(TOPIC, body)).is_ok
            except PyroError:
                is_safe = False
            if not is_safe:
                self.refused += 1
                continue
            now_s = time.monotonic()
            self.longest_gap_s = max(self.longest_gap_s, now_s - self._last_s)
            self._last_s = now_s
            self.acknowledged.add(body)

    def wait(self, is_done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _HEAL_S
        while not is_done():
            if time.monotonic() > deadline:
                missing = len(self.acknowledged - self.got.keys())
                raise AssertionError(
                    f"within {_HEAL_S:.0f} s it never came about that {what}; {missing} are not read"
                )
            time.sleep(_LOOK_S)

    def wait_taken(self) -> None:
        """Until the cluster takes messages."""
        wanted = len(self.acknowledged) + 5
        self.wait(lambda: len(self.acknowledged) >= wanted, "the cluster takes messages")


class Operator:
    """What an operator does, as docs/howto/runbooks.md says."""

    def __init__(self, cluster: Any, shop: Shop) -> None:
        self.cluster, self.shop = cluster, shop

    def admin(self, *words: str, **more: str) -> str:
        return str(self.cluster.run("mqadmin", *words, **more))

    def wait_in_sync(self, count: int = 3) -> None:
        def is_whole() -> bool:
            asked = ["getSyncStateSet", "-a", self.cluster.address("controller-0"), "-b", "broker-a"]
            try:
                return self.admin(*asked).count("\ntrue ") == count
            except SystemExit:  # no controller, or one that does not know the group yet
                return False

        self.shop.wait(is_whole, f"{count} brokers are in sync")

    def restart(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        self.cluster.stop(name, how)
        self.cluster.start(name)
        if name.startswith("broker"):
            self.cluster.wait_ready(name)
        self.wait_in_sync()

    def restart_everything(self) -> None:
        for name in EXAMPLE.PLACES:
            self.restart(name)

    def kill_brokers(self) -> None:
        for name in self.cluster.brokers:
            self.restart(name, signal.SIGKILL)

    def replace_a_machine(self) -> None:
        """A broker is lost with its disk; an empty one takes its place."""
        name = self.cluster.brokers[-1]
        address = self.cluster.address(name)
        self.cluster.stop(name, signal.SIGKILL)
        shutil.rmtree(self.cluster.directory / name / "store")
        self.wait_in_sync(2)
        asked = ["getSyncStateSet", "-a", self.cluster.address("controller-0"), "-b", "broker-a"]
        rows = [line.split() for line in self.admin(*asked).splitlines() if address in line]
        (lost,) = [row[1] for row in rows if len(row) == 4]
        controller = ["-a", self.cluster.address("controller-0")]
        self.admin("cleanBrokerMetadata", *controller, "-bn", "broker-a", "-b", lost)
        self.cluster.start(name)
        self.cluster.wait_ready(name)
        self.wait_in_sync()

    def change_the_servers_password(self) -> None:
        user = ["updateUser", "-c", CLUSTER, "-u", "servers"]
        password = token_urlsafe(24)
        self.admin(*user, "-p", password, "-o", "keep")
        self.cluster.change_password("servers", password)
        for name in EXAMPLE.PLACES:
            self.restart(name)
        self.admin(*user, "-o", "drop")
        self.wait_in_sync()

    def change_the_authority(self) -> None:
        """Nothing is restarted for it; the restart at the end shows that new connections work."""
        self.cluster.make_authority()
        for name in (*EXAMPLE.PLACES, SPARE):
            self.cluster.issue(name)
        self.cluster.retire_old_authority()
        self.restart("broker-0")

    def grow_drain_and_shrink(self) -> None:
        """A second group takes everything while the first is read-only."""
        self.cluster.start(SPARE)
        self.cluster.wait_ready(SPARE)
        self.admin("updateTopic", "-b", self.cluster.address(SPARE), "-t", TOPIC, "-r", "4", "-w", "4")
        self.admin("updateSubGroup", "-b", self.cluster.address(SPARE), "-g", GROUP)
        users = ["-f", self.cluster.address("namesrv-0"), "-t", self.cluster.address(SPARE)]
        self.admin("copyUser", *users)
        self.admin("copyAcl", *users)
        self.admin("drainBroker", "-b", "broker-a")
        self.shop.wait_taken()
        self.admin("drainBroker", "-b", "broker-a", "--undo")
        self.admin("drainBroker", "-b", "broker-b")
        self.shop.wait_taken()
        self.shop.wait(lambda: self.shop.acknowledged <= self.shop.got.keys(), "all is read")
        self.cluster.stop(SPARE)
        shutil.rmtree(self.cluster.directory / SPARE / "store")
        forget = ["cleanBrokerMetadata", "-a", self.cluster.address("controller-0"), "-bn", "broker-b"]
        self.shop.wait(lambda: self.succeeds(*forget), "the controller forgets broker-b")

    def back_up_a_replica(self) -> None:
        name = next(each for each in self.cluster.brokers if self.cluster.address(each) != self.master())
        self.cluster.stop(name)
        store, copy = (self.cluster.directory / name / each for each in ("store", "copy"))
        # Its files are mapped whole: most of them was never written.
        subprocess.run(["cp", "--archive", "--sparse=always", store, copy], check=True)
        self.cluster.start(name)
        check = [str(EXAMPLE.PROGRAMS / "pyromq"), "store", "inspect", str(copy), "--verify"]
        subprocess.run(check, check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(copy)
        self.wait_in_sync()

    def master(self) -> str:
        shown = self.admin("getSyncStateSet", "-a", self.cluster.address("controller-0"), "-b", "broker-a")
        return next(line.split()[1] for line in shown.splitlines() if line.startswith("#MasterAddr"))

    def succeeds(self, *words: str) -> bool:
        try:
            self.admin(*words)
        except SystemExit:
            return False
        return True

    def lose_the_controllers_store(self) -> None:
        self.cluster.stop("controller-0")
        shutil.rmtree(self.cluster.directory / "controller-0" / "decisions")
        self.cluster.start("controller-0")
        self.wait_in_sync()
        self.restart(self.cluster.brokers[0])

    def day(self) -> list[Callable[[], None]]:
        return [
            self.restart_everything,
            self.kill_brokers,
            self.replace_a_machine,
            self.back_up_a_replica,
            self.change_the_servers_password,
            self.change_the_authority,
            self.grow_drain_and_shrink,
            self.lose_the_controllers_store,
        ]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="dayone", description=__doc__)
    parser.add_argument("--minutes", type=float, default=0, help="repeat everything until then")
    chosen = parser.parse_args(arguments)
    deadline = time.monotonic() + chosen.minutes * 60
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory, ha_example(Path(directory)) as cluster:
        shop = Shop(cluster)
        operator = Operator(cluster, shop)
        try:
            with shop.open():
                shop.wait_taken()
                days = 0
                while not days or time.monotonic() < deadline:
                    days += 1
                    for operation in operator.day():
                        at_s, before = time.monotonic(), len(shop.acknowledged)
                        operation()
                        shop.wait_taken()
                        taken = len(shop.acknowledged) - before
                        took_s = time.monotonic() - at_s
                        say(f"dayone: {operation.__name__}: {took_s:.0f} s, {taken:,} messages")
        except (AssertionError, SystemExit, subprocess.CalledProcessError) as problem:
            say(f"dayone: FAILED: {problem}")
            kept = Path("build/dayone")
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(directory, kept, ignore=shutil.ignore_patterns("store"))
            return 1
    missing = len(shop.acknowledged - shop.got.keys())
    twice = sum(count > 1 for count in shop.got.values())
    say(
        f"dayone: {days} days in {(time.monotonic() - began) / 60:.1f} minutes: {len(shop.acknowledged):,}"
        f" acknowledged, {missing} lost, {twice} delivered again, {shop.refused} refused;"
        f" longest time without an acknowledgement {shop.longest_gap_s:.1f} s"
    )
    return bool(missing)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
