"""What can break, and how it heals: one function for each kind of fault.

Promises hold for one fault at a time, so most of them wait until all brokers are in sync.
"""

import asyncio
import errno
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from tests.simulation.cluster import HA_PORT, Server, SimulatedCluster
from tests.simulation.network import Connection
from tests.simulation.plans import Fault, FaultKind
from tests.simulation.processes import Host
from tests.simulation.recording import Recorder

from pyromq.errors import RemoteProtocolError
from pyromq.protocol.record import MAGIC_V1, scan_record

Heal = Callable[[], None]

_MAGIC, _MAGIC_AT = MAGIC_V1.to_bytes(4, signed=True), 4
"""The mark of a record, behind its size."""

WHOLE_S = 90.0
"""So long it may take until all brokers are in sync again."""
AVAILABLE_S = 40.0
"""After this time another broker must have taken the place of one that is gone: its lease, two scans of the
controller, and ten seconds more."""


class Faults:
    """Breaks the cluster as a plan says."""

    def __init__(self, cluster: SimulatedCluster, recorder: Recorder) -> None:
        self._cluster = cluster
        self._recorder = recorder
        self._open: list[asyncio.Task[None]] = []

    async def run(self) -> bool:
        """Return when the last fault is over; False if the cluster did not get over one of them."""
        for fault in self._cluster.plan.faults:
            await asyncio.sleep(fault.after_s)
            kind = KINDS[fault.kind]
            waits = kind.waits and not fault.at_once
            if waits and not await self._cluster.whole(WHOLE_S):
                self._recorder.violation("not whole", f"{self._cluster.state()} after {WHOLE_S} s")
                return False
            lasting = asyncio.create_task(self._break(fault, kind))
            if waits:
                await lasting
            else:
                self._open.append(lasting)
        if self._open:
            await asyncio.wait(self._open)
        return True

    async def _break(self, fault: Fault, kind: "Kind") -> None:
        cluster = self._cluster
        server = cluster.target(fault.target)
        if server is None:
            return
        self._recorder.event("fault", f"{fault.kind} {fault.detail} {server.host.name} for {fault.for_s} s")
        began_s = cluster.loop.time()
        heal = kind.begin(cluster, server, fault)
        await asyncio.sleep(fault.for_s)
        is_judged = kind.is_survived(fault) and not any(each.at_once for each in cluster.plan.faults)
        if is_judged and cluster.plan.has_controller and cluster.plan.replicas > 2:
            self._recorder.check_available(began_s, AVAILABLE_S, f"{fault.kind} of {server.host.name}")
        heal()
        self._recorder.event("healed", f"{fault.kind} {server.host.name}")


def _never(_: Fault) -> bool:
    return False


def _always(_: Fault) -> bool:
    return True


@dataclass(frozen=True)
class Kind:
    begin: Callable[[SimulatedCluster, Server, Fault], Heal]
    """Breaks something; what it returns heals it."""
    waits: bool = True
    """Until all brokers are in sync; another fault waits until this one is over."""
    is_survived: Callable[[Fault], bool] = _never
    """Whether the other two of three brokers must take messages meanwhile."""


def _kill(_: SimulatedCluster, server: Server, __: Fault) -> Heal:
    server.kill()
    return server.start


def _power(cluster: SimulatedCluster, server: Server, fault: Fault) -> Heal:
    """At once, or `inside` one of the next operations of its disk."""
    disk = server.disk
    if fault.detail != "inside":
        server.lose_power()
        return server.start
    disk.die_inside(cluster.chance.randint(1, 20), server.lose_power)

    def heal() -> None:
        disk.heal()  # it may not have come to that
        server.start()

    return heal


def _stall(cluster: SimulatedCluster, _: Server, fault: Fault) -> Heal:
    """`ha`: connections between master and replicas only. `strength`: the part of them that stalls."""
    until_s = cluster.loop.time() + fault.for_s
    for connection in list(cluster.network.connections.values()):
        is_meant = connection.port == HA_PORT or fault.detail == "any"
        if is_meant and cluster.chance.random() < fault.strength:
            connection.stall(until_s)
    return _nothing


def _partition(cluster: SimulatedCluster, server: Server, fault: Fault) -> Heal:
    """From `all` or the other `brokers`, `both` ways, or only what goes `in` or `out`."""
    which, ways = fault.detail.split()
    others = [
        host
        for host in cluster.network.hosts()
        if host is not server.host and (which == "all" or host in cluster.broker_hosts())
    ]
    return _cut(cluster, server, others, ways)


def _cut(cluster: SimulatedCluster, server: Server, others: list[Host], ways: str) -> Heal:
    own = server.host.address
    pairs = [(other.address, own) for other in others if ways != "out"]
    pairs += [(own, other.address) for other in others if ways != "in"]
    return _blocked(cluster, pairs)


def _severed(cluster: SimulatedCluster, server: Server, fault: Fault) -> Heal:
    """A broker and its controller do not hear each other: `both` ways, or only what goes `in` or `out`."""
    controllers = [each.host for each in cluster.controllers]
    return _cut(cluster, server, controllers, fault.detail)


def _reset(cluster: SimulatedCluster, server: Server, fault: Fault) -> Heal:
    """Connections of a broker break: `all`, or those to its `controller`, which takes it for gone."""
    controllers = [each.process for each in cluster.controllers]
    for connection in list(cluster.network.connections.values()):
        processes = [end.process for end in connection.ends]
        is_meant = fault.detail == "all" or any(each in controllers for each in processes)
        if server.process in processes and is_meant:
            connection.reset()
    return _nothing


def _blocked(cluster: SimulatedCluster, pairs: list[tuple[str, str]]) -> Heal:
    for pair in pairs:
        cluster.network.block(*pair)

    def heal() -> None:
        for pair in pairs:
            cluster.network.unblock(*pair)

    return heal


def _pause(_: SimulatedCluster, server: Server, __: Fault) -> Heal:
    process = server.process
    assert process is not None
    process.pause()
    return process.go_on


def _slow(_: SimulatedCluster, server: Server, fault: Fault) -> Heal:
    disk = server.disk
    disk.slow(fault.strength)
    return disk.heal


def _failing_disk(cluster: SimulatedCluster, server: Server, fault: Fault) -> Heal:
    """Syncs fail, all or only `once`; an operator replaces the disk's cable and restarts the broker."""
    disk = server.disk
    disk.fail("sync", errno.EIO)
    if fault.detail == "once":
        cluster.loop.call_later(cluster.chance.uniform(0.01, 1.2), disk.heal)
    return partial(_restart_with_sound_disk, server)


def _restart_with_sound_disk(server: Server) -> None:
    server.disk.heal()
    server.kill()
    server.start()


def _full(_: SimulatedCluster, server: Server, __: Fault) -> Heal:
    disk = server.disk
    disk.fail("full", errno.ENOSPC)
    return disk.heal


def _read_only(_: SimulatedCluster, server: Server, __: Fault) -> Heal:
    """As a file system makes itself that has found an error; an operator mounts it again and restarts all."""
    server.disk.fail("read-only", errno.EROFS)
    return partial(_restart_with_sound_disk, server)


def _clock(_: SimulatedCluster, server: Server, fault: Fault) -> Heal:
    """The wall clock leaps by `strength` seconds, and back in the end."""
    clock, leap_ms = server.host.clock, int(fault.strength * 1000)
    clock.ahead_ms += leap_ms

    def heal() -> None:
        clock.ahead_ms -= leap_ms

    return heal


def _client(cluster: SimulatedCluster, _: Server, fault: Fault) -> Heal:
    """A consumer is killed, and another one takes its place; or it is paused, or its machine `suspended`."""
    if not cluster.consumers:
        return _nothing
    consumer = cluster.chance.choice(cluster.consumers)
    process = consumer.process
    if not fault.detail:
        process.kill()
        return consumer.start_again
    process.pause()

    def go_on() -> None:
        if fault.detail == "suspended":
            process.host.clock.suspended(fault.for_s)
        process.go_on()

    return go_on


def _controller(cluster: SimulatedCluster, _: Server, fault: Fault) -> Heal:
    """The one that leads."""
    controller = next(iter(cluster.leading()), cluster.controllers[0])
    if fault.detail == "pause":
        return _pause(cluster, controller, fault)
    if fault.detail == "damaged":
        return _damaged_journal(controller)
    controller.kill() if fault.detail == "kill" else controller.lose_power()
    return controller.start


def _damaged_journal(controller: Server) -> Heal:
    """A bit of the last entry flips while the controller is down. It must not start with what it had before;
    an operator puts a copy of the file in its place."""
    controller.kill()
    put_back = controller.disk.flip_last_bit("groups.journal")
    controller.start()

    def heal() -> None:
        controller.kill()
        put_back()
        controller.failed_starts.clear()
        controller.start()

    return heal


def _etcd(cluster: SimulatedCluster, _: Server, fault: Fault) -> Heal:
    """It is gone, paused, slow by `strength` seconds, or cut off from the controller that leads."""
    etcd, data = cluster.etcd, cluster.etcd_data
    if etcd is None:
        return _nothing
    if fault.detail == "pause":
        return _pause(cluster, etcd, fault)
    if fault.detail == "slow":
        data.delay_s = fault.strength

        def heal() -> None:
            data.delay_s = 0.0

        return heal
    if fault.detail.startswith("cut"):
        leading = next(iter(cluster.leading()), cluster.controllers[0])
        return _cut(cluster, etcd, [leading.host], fault.detail.removeprefix("cut "))
    etcd.kill() if fault.detail == "kill" else etcd.lose_power()
    return etcd.start


def _wipe(cluster: SimulatedCluster, server: Server, fault: Fault) -> Heal:
    """The controllers lose their store. The brokers run on, or all are `restarted` in any order, or one that
    missed messages (`stale`) is the first to come back, again and again."""
    loop, others = cluster.loop, [each for each in cluster.brokers if each is not server]
    if not fault.detail:
        cluster.wipe_controllers()
        return _nothing

    def wipe() -> None:
        for each in cluster.brokers:
            each.kill()
        cluster.wipe_controllers()
        if fault.detail == "stale":
            for part in (0.5, 0.6, 0.8):
                loop.call_at(began_s + part * fault.for_s, server.start)
        else:
            for each in cluster.brokers:
                loop.call_later(cluster.chance.uniform(0.0, fault.for_s / 3), each.start)

    def heal() -> None:
        for each in others:
            if not each.is_alive:
                each.start()

    began_s = loop.time()
    if fault.detail == "stale":
        server.kill()
    loop.call_later(fault.for_s / 2, wipe)
    return heal


def _front(cluster: SimulatedCluster, server: Server, fault: Fault) -> Heal:
    """The gRPC front is killed, stopped, paused, or cut off from one of the brokers."""
    front = cluster.front
    if front is None or not front.is_alive:
        return _nothing
    if fault.detail == "pause":
        return _pause(cluster, front, fault)
    if fault.detail == "cut":
        return _cut(cluster, front, [server.host], "both")
    front.kill() if fault.detail == "kill" else front.stop()
    return front.start


def _store(cluster: SimulatedCluster, _: Server, fault: Fault) -> Heal:
    """A part of the requests to the object store, by `strength`, is refused, `unanswered`, or carried out
    `late`; or all are `slow`, or it is `away`."""
    trouble = cluster.object_data.trouble
    if fault.detail == "slow":
        trouble.slow_s = 2 * fault.strength
    elif fault.detail == "unanswered":
        trouble.unanswered = fault.strength
    elif fault.detail == "late":
        trouble.late = fault.strength
    else:
        trouble.refused = 1.0 if fault.detail == "away" else fault.strength
    return trouble.end


def _names(cluster: SimulatedCluster, _: Server, __: Fault) -> Heal:
    cluster.names.kill()
    return cluster.names.start


def _all_power(cluster: SimulatedCluster, server: Server, fault: Fault) -> Heal:
    """All servers at once; they come back after a second, one of the brokers perhaps much later."""
    for each in cluster.servers:
        each.lose_power()
    late = server if fault.detail == "one stays away" else None
    for each in cluster.servers:
        if each is not late:
            cluster.loop.call_later(1.0, each.start)
    return late.start if late is not None else _nothing


def _flip(cluster: SimulatedCluster, _: Server, __: Fault) -> Heal:
    """One bit of a body on its way to a replica: the format has no checksum for the rest."""
    cluster.network.flips.append(_first_body)
    return cluster.network.flips.clear


def _damage(_: SimulatedCluster, server: Server, fault: Fault) -> Heal:
    """One bit of a body at `rest` on the disk of a broker that runs, or is `stopped` meanwhile."""
    if fault.detail == "stopped":
        server.kill()
    server.disk.flip_bit(_bodies)
    return server.start if fault.detail == "stopped" else _nothing


def _bodies(content: bytes) -> list[int]:
    """The places of all bytes of bodies in a file of the log."""
    places: list[int] = []
    start = 0
    with suppress(RemoteProtocolError):
        while (outline := scan_record(content, start)) is not None:
            places += range(outline.body_start, outline.body_end)
            start = outline.end
    return places


def _first_body(connection: Connection, data: bytes) -> int | None:
    """Where the first body is in a piece of the log that a replica gets."""
    start = data.find(_MAGIC) - _MAGIC_AT
    if connection.port != HA_PORT or start < 0:
        return None
    try:
        outline = scan_record(data, start)
    except RemoteProtocolError:
        return None
    return outline.body_start if outline is not None else None


def _restart(cluster: SimulatedCluster, server: Server, _: Fault) -> Heal:
    """A clean stop, as for an upgrade."""
    server.stop()
    return server.start


def _nothing() -> None:
    """It heals by itself."""


def _is_from_all(fault: Fault) -> bool:
    return fault.detail == "all both"


def _is_running(fault: Fault) -> bool:
    return not fault.detail


KINDS: dict[FaultKind, Kind] = {
    "kill": Kind(_kill, is_survived=_always),
    "power": Kind(_power, is_survived=_always),
    "stall": Kind(_stall, waits=False),
    "partition": Kind(_partition, is_survived=_is_from_all),
    "severed": Kind(_severed, waits=False),
    "reset": Kind(_reset, is_survived=_always),
    "pause": Kind(_pause, is_survived=_always),
    "slow": Kind(_slow, waits=False),
    "eio": Kind(_failing_disk, is_survived=_always),
    "full": Kind(_full),
    "read-only": Kind(_read_only, is_survived=_always),
    "clock": Kind(_clock, waits=False),
    "client": Kind(_client, waits=False),
    "controller": Kind(_controller, is_survived=_always),
    "etcd": Kind(_etcd, is_survived=_always),
    "wipe": Kind(_wipe, is_survived=_is_running),
    "front": Kind(_front, waits=False),
    "names": Kind(_names, waits=False),
    "all power": Kind(_all_power, is_survived=_always),
    "flip": Kind(_flip, waits=False),
    "damage": Kind(_damage),
    "restart": Kind(_restart, is_survived=_always),
    "store": Kind(_store, waits=False, is_survived=_always),
}
