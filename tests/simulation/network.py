"""The network in memory: connections between hosts, with what TCP promises and no more.

Bytes of one direction stay in order and are never lost while both ends live. But any piece may be late, be
cut in two, or wait until a partition heals, and connections overtake each other. A host without power answers
nothing; a running host resets a connection that it does not know.
"""

import asyncio
import contextvars
import errno
import os
import socket
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, cast

from tests.simulation.loop import SimulatedLoop
from tests.simulation.processes import Host, Process

from pyromq.remoting.ports import Ports

_LOCAL_DELAY_S = 0.00002
_MIN_DELAY_S, _MAX_DELAY_S = 0.0001, 0.0005
_SLOW_RATIO, _SLOW_S = 0.01, 0.02
_CUT_RATIO = 0.02
"""How many of the pieces arrive in two parts."""
_MAX_RETRANSMIT_S = 1.0
_FIRST_SYN_RETRY_S = 1.0
_CONNECT_TIMEOUT_S = 127.0
_SYSTEM_BUFFER_BYTES = 256 * 1024
_MAX_INBOX = 64
"""So many pieces wait at a host for a process that does not read."""
_FIRST_EPHEMERAL_PORT = 40_000
_LOOPBACK = "127.0.0.1"


class Network:
    def __init__(self, loop: SimulatedLoop, chance: Random) -> None:
        self._loop = loop
        self._chance = chance
        self._hosts: dict[str, Host] = {}
        self._listeners: dict[tuple[str, int], Listener] = {}
        self._blocked: set[tuple[str, str]] = set()
        self._held: list[Direction] = []
        self._count = 0
        self.connections: dict[int, Connection] = {}
        self.flips: list[Callable[[Connection, bytes], int | None]] = []
        """Each looks for a place in the pieces that arrive; there, one bit is flipped."""
        self.watchers: dict[int, Callable[[End], Callable[[bytes], None] | None]] = {}
        """By port: for the server's end of a new connection, what sees all that it writes."""
        loop.network = self

    def add_host(self, host: Host) -> None:
        self._hosts[host.address] = host

    def hosts(self) -> list[Host]:
        return list(self._hosts.values())

    # Faults

    def block(self, source: str, target: str) -> None:
        """Nothing gets from one address to the other until `unblock`."""
        self._blocked.add((source, target))

    def unblock(self, source: str, target: str) -> None:
        self._blocked.discard((source, target))
        self._retransmit()

    def is_blocked(self, source: Host, target: Host) -> bool:
        return (source.address, target.address) in self._blocked or not target.is_up

    def hold(self, direction: "Direction") -> None:
        self._held.append(direction)

    def _retransmit(self) -> None:
        held, self._held = self._held, []
        for direction in held:
            direction.retry(self._chance.uniform(0.01, _MAX_RETRANSMIT_S))

    def host_is_back(self, host: Host) -> None:
        self._retransmit()

    def host_is_gone(self, host: Host) -> None:
        """It lost its power: what was on the way arrives, and nothing follows."""
        for connection in list(self.connections.values()):
            for end in connection.ends:
                if end.host is host:
                    end.vanish()
        for key in [key for key in self._listeners if key[0] == host.address]:
            del self._listeners[key]

    def process_is_gone(self, process: Process) -> None:
        """It was killed: the system closes everything that it had open."""
        for listener in list(self._listeners.values()):
            if listener.process is process:
                listener.close()
        for connection in list(self.connections.values()):
            for end in connection.ends:
                if end.process is process:
                    end.close_by_system()

    def delay_s(self, source: Host, target: Host) -> float:
        if source is target:
            return _LOCAL_DELAY_S
        chance = self._chance.random()
        if chance < _SLOW_RATIO:
            return _SLOW_S * chance / _SLOW_RATIO
        return _MIN_DELAY_S + chance * (_MAX_DELAY_S - _MIN_DELAY_S)

    def cut(self, size: int) -> int:
        """Where a piece is cut in two; 0 if it is not."""
        return self._chance.randrange(1, size) if size > 1 and self._chance.random() < _CUT_RATIO else 0

    def damaged(self, connection: "Connection", data: bytes) -> bytes:
        for find in self.flips:
            position = find(connection, data)
            if position is not None:
                self.flips.remove(find)
                flipped = bytearray(data)
                flipped[position] ^= 1 << self._chance.randrange(8)
                return bytes(flipped)
        return data

    # Listening and connecting

    def listen(self, process: Process, port: int) -> "Listener":
        if not port:
            port = next(
                each for each in range(20_000, 40_000) if (process.host.address, each) not in self._listeners
            )
        key = (process.host.address, port)
        if key in self._listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        listener = self._listeners[key] = Listener(self, process, port)
        return listener

    def forget(self, listener: "Listener") -> None:
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]

    async def connect(
        self, make_protocol: Callable[[], asyncio.BaseProtocol], address: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        process = self._loop.process
        assert process is not None
        source = process.host
        target = source if address == _LOOPBACK else self._hosts.get(address)
        if target is None:
            raise OSError(errno.EHOSTUNREACH, f"no host has the address {address}")
        deadline, retry_s = self._loop.time() + _CONNECT_TIMEOUT_S, _FIRST_SYN_RETRY_S
        while True:
            await asyncio.sleep(self.delay_s(source, target))
            if not self.is_blocked(source, target) and not self.is_blocked(target, source):
                break
            if self._loop.time() > deadline:
                raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
            await asyncio.sleep(retry_s)
            retry_s *= 2
        listener = self._listeners.get((target.address, port))
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"{address}:{port}: Connection refused")
        connection = self._open(process, listener)
        try:
            await asyncio.sleep(self.delay_s(target, source))
        except asyncio.CancelledError:
            connection.client.abort()
            raise
        protocol = make_protocol()
        return connection.client.connect_protocol(protocol), protocol

    def _open(self, process: Process, listener: "Listener") -> "Connection":
        self._count += 1
        near = (process.host.address, _FIRST_EPHEMERAL_PORT + self._count % 20_000)
        far = listener.address
        connection = Connection(self, self._loop, self._count, process, near, listener.process, far)
        self.connections[connection.number] = connection
        if (watcher := self.watchers.get(far[1])) is not None:
            connection.server.watch = watcher(connection.server)
        listener.offer(connection.server)
        return connection


class Listener:
    """A listening socket, as far as an acceptor uses one."""

    def __init__(self, network: Network, process: Process, port: int) -> None:
        self._network = network
        self.process = process
        self.address = (process.host.address, port)
        self._waiting: deque[End] = deque()
        self._reader: Callable[[], object] | None = None
        self._context: contextvars.Context | None = None

    def getsockname(self) -> tuple[str, int]:
        return self.address

    def setblocking(self, _: bool) -> None:
        """It never blocks."""

    def listen(self, _: int = 0) -> None:
        """It does so from the beginning."""

    def add_reader(self, callback: Callable[..., object], *args: object) -> None:
        self._reader = lambda: callback(*args)
        self._context = contextvars.copy_context()
        if self._waiting:
            self._wake()

    def remove_reader(self) -> bool:
        had_one, self._reader = self._reader is not None, None
        return had_one

    def offer(self, end: "End") -> None:
        self._waiting.append(end)
        if self._reader is not None:
            self._wake()

    def _wake(self) -> None:
        self.process.host.loop.call_soon(self._ready, context=self._context)

    def _ready(self) -> None:
        if self._waiting and self._reader is not None:
            self._reader()

    def accept(self) -> tuple["End", tuple[str, int]]:
        if not self._waiting:
            raise BlockingIOError
        end = self._waiting.popleft()
        return end, end.peer.address

    def close(self) -> None:
        self._network.forget(self)
        self._reader = None
        for end in self._waiting:
            end.close_by_system()
        self._waiting.clear()


class SimulatedPorts(Ports):
    """The ports of one process."""

    def __init__(self, network: Network, process: Process) -> None:
        self._network = network
        self._process = process

    def listen(
        self, host: str, port: int, *, send_buffer_bytes: int = 0, receive_buffer_bytes: int = 0
    ) -> socket.socket:
        return cast(socket.socket, self._network.listen(self._process, port))

    def address_of(self, host: str) -> str:
        return host


class Connection:
    """Two ends and the two directions between them."""

    def __init__(
        self,
        network: Network,
        loop: SimulatedLoop,
        number: int,
        client: Process,
        client_address: tuple[str, int],
        server: Process,
        server_address: tuple[str, int],
    ) -> None:
        self.network = network
        self.number = number
        self.stalled_until_s = 0.0
        self.client = End(self, loop, client, client_address)
        self.server = End(self, loop, server, server_address)
        self.client.set_peer(self.server, 2 * number)
        self.server.set_peer(self.client, 2 * number + 1)
        self.ends = (self.client, self.server)

    def __repr__(self) -> str:
        return f"<Connection {self.number} {self.client.process.name} to {self.server.process.name}>"

    @property
    def port(self) -> int:
        """The server's."""
        return self.server.address[1]

    def stall(self, until_s: float) -> None:
        """What is sent arrives later than this."""
        self.stalled_until_s = max(self.stalled_until_s, until_s)

    def reset(self) -> None:
        """A firewall has forgotten it: both ends hear so, and what was on the way is lost."""
        for end in self.ends:
            end.take(_RESET, b"")

    def end_is_closed(self) -> None:
        if self.client.is_over and self.server.is_over:
            self.network.connections.pop(self.number, None)


_DATA, _END, _RESET = range(3)
"""What a piece on the way is: bytes, the end of them, or the end of the connection."""


class Direction:
    """The bytes from one end to the other, in order."""

    def __init__(self, source: "End", target: "End", loop: SimulatedLoop, number: int) -> None:
        self._source = source
        self._target = target
        self._loop = loop
        self._network = source.connection.network
        self._number = number
        self._pieces: deque[tuple[float, int, bytes]] = deque()
        self._last_s = 0.0
        self._is_planned = False
        self._is_held = False
        """It waits until a partition heals, or a host is back."""
        self.waiting_bytes = 0

    def send(self, kind: int, data: bytes = b"") -> None:
        network = self._network
        at_s = self._loop.time() + network.delay_s(self._source.host, self._target.host)
        self._last_s = at_s = max(at_s, self._last_s)
        if data and (cut := network.cut(len(data))):
            self._pieces.append((at_s, kind, data[:cut]))
            self._last_s = at_s + network.delay_s(self._source.host, self._target.host)
            self._pieces.append((self._last_s, kind, data[cut:]))
        else:
            self._pieces.append((at_s, kind, data))
        self.waiting_bytes += len(data)
        self._plan(at_s)

    def clear(self, keep_until_s: float = 0.0) -> None:
        """Forget what has not arrived, except what is on the way and comes before this time."""
        if self._is_held:
            keep_until_s = 0.0
        self._pieces = deque(piece for piece in self._pieces if piece[0] <= keep_until_s)
        self.waiting_bytes = sum(len(data) for _, _, data in self._pieces)

    def retry(self, delay_s: float) -> None:
        self._is_planned = self._is_held = False
        if self._pieces:
            self._plan(self._loop.time() + delay_s)

    def _plan(self, at_s: float) -> None:
        if not self._is_planned:
            self._is_planned = True
            self._loop.call_at(at_s, self._arrive, context=_NO_PROCESS)

    def _arrive(self) -> None:
        """Something has reached the other host; this runs outside of all processes."""
        self._is_planned = False
        if not self._pieces:
            return
        now, stalled_until_s = self._loop.time(), self._source.connection.stalled_until_s
        if now < stalled_until_s:
            self._plan(stalled_until_s)
            return
        if self._network.is_blocked(self._source.host, self._target.host):
            self._is_planned = self._is_held = True
            self._network.hold(self)
            return
        if not self._target.wants_more:
            return  # it calls `go_on`
        at_s, kind, data = self._pieces[0]
        if at_s > now:
            self._plan(at_s)
            return
        self._pieces.popleft()
        self.waiting_bytes -= len(data)
        self._loop.trace.add(now, self._number, len(data), data)
        if data and self._network.flips:
            data = self._network.damaged(self._source.connection, data)
        self._target.take(kind, data)
        self._source.sent()
        if self._pieces:
            self._plan(max(self._pieces[0][0], now))

    def go_on(self) -> None:
        if self._pieces:
            self._plan(self._loop.time())


_NO_PROCESS = contextvars.Context()


class End(asyncio.Transport):
    """One end of a connection: the transport of its protocol, and the socket that was accepted."""

    def __init__(
        self, connection: Connection, loop: SimulatedLoop, process: Process, address: tuple[str, int]
    ) -> None:
        super().__init__()
        self.connection = connection
        self.process = process
        self.host = process.host
        self.address = address
        self._simulated = loop
        self._protocol: asyncio.BaseProtocol | None = None
        self._context: contextvars.Context | None = None
        self._inbox: deque[tuple[int, bytes]] = deque()
        """What has arrived and was not read yet."""
        self._is_read_planned = False
        self._is_closing = False
        self.is_over = False
        """The system does not know it any more."""
        self._is_reading = True
        self._high, self._low = 64 * 1024, 16 * 1024
        self._is_write_paused = False
        self.watch: Callable[[bytes], None] | None = None

    def __repr__(self) -> str:
        return f"<End of {self.connection}>"

    def set_peer(self, peer: "End", number: int) -> None:
        self.peer = peer
        self._out = Direction(self, peer, self._simulated, number)

    # As a socket

    def fileno(self) -> int:
        return 100

    def setblocking(self, _: bool) -> None:
        """It never blocks."""

    def connect_protocol(self, protocol: asyncio.BaseProtocol) -> asyncio.Transport:
        self._protocol = protocol
        self._context = contextvars.copy_context()
        protocol.connection_made(self)
        self._read_soon()
        return self

    # As a transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peername":
            return self.peer.address
        return self.address if name == "sockname" else default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self._read_soon()
            self.peer._out.go_on()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 * 1024 if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return max(self._out.waiting_bytes - _SYSTEM_BUFFER_BYTES, 0)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or not data:
            return
        content = bytes(data)
        if self.watch is not None:
            self.watch(content)
        self._out.send(_DATA, content)
        if not self._is_write_paused and self.get_write_buffer_size() > self._high:
            self._is_write_paused = True
            cast(asyncio.Protocol, self._protocol).pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._out.send(_END)

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._out.send(_END)
            self._lose(None)

    def abort(self) -> None:
        if not self.is_over:
            self._out.clear()
            self._out.send(_RESET)
            self._is_closing = True
            self._lose(None)

    # As the system

    @property
    def wants_more(self) -> bool:
        """Whether there is room for what comes; what comes after the end is thrown away."""
        return self.is_over or self._is_reading or len(self._inbox) < _MAX_INBOX

    def sent(self) -> None:
        """The other host has taken something."""
        if self._is_write_paused and self.get_write_buffer_size() <= self._low and not self.is_over:
            self._is_write_paused = False
            assert self._context is not None
            self._simulated.call_soon(self._resume_writing, context=self._context)

    def _resume_writing(self) -> None:
        if not self.is_over:
            cast(asyncio.Protocol, self._protocol).resume_writing()

    def take(self, kind: int, data: bytes) -> None:
        """Something has arrived at this host."""
        if self.is_over:
            if kind == _DATA:
                self._out.send(_RESET)
        elif kind == _RESET and self._protocol is not None:
            self._reset()
        else:
            self._inbox.append((kind, data))
            self._read_soon()

    def _reset(self) -> None:
        self._out.clear()
        self._is_closing = True
        self._lose(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def _read_soon(self) -> None:
        if self._inbox and self._protocol is not None and self._is_reading and not self._is_read_planned:
            self._is_read_planned = True
            self._simulated.call_soon(self._read, context=self._context)

    def _read(self) -> None:
        """Runs in the process."""
        self._is_read_planned = False
        while self._inbox and self._is_reading and not self._is_closing:
            kind, data = self._inbox.popleft()
            if kind == _RESET:
                self._reset()
            elif kind == _END:
                if not cast(asyncio.Protocol, self._protocol).eof_received():
                    self.close()
            else:
                self._pass_on(data)
        self.peer._out.go_on()

    def _pass_on(self, data: bytes) -> None:
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            rest = memoryview(data)
            while rest and not self._is_closing:
                buffer = memoryview(protocol.get_buffer(len(rest)))
                size = min(len(buffer), len(rest))
                buffer[:size] = rest[:size]
                protocol.buffer_updated(size)
                rest = rest[size:]
        else:
            cast(asyncio.Protocol, protocol).data_received(data)

    def _lose(self, problem: Exception | None) -> None:
        """The protocol hears of the end, in the next turn."""
        if not self.is_over:
            self.is_over = True
            self._inbox.clear()
            if self._protocol is not None:
                self._simulated.call_soon(self._protocol.connection_lost, problem, context=self._context)
            self.peer._out.go_on()
            self.connection.end_is_closed()

    def close_by_system(self) -> None:
        """Its process is dead: what it wrote last may arrive or not."""
        if not self.is_over:
            self.is_over = self._is_closing = True
            if self.process.chance.random() < 0.5:
                self._out.clear()
            self._out.send(_RESET)
            self.connection.end_is_closed()

    def vanish(self) -> None:
        """Its host has lost power. The other end hears nothing of it until the host is back and resets it."""
        self.is_over = self._is_closing = True
        self._out.clear(keep_until_s=self._simulated.time() + _SLOW_S)
        self.connection.end_is_closed()
