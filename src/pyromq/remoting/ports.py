"""The network of this machine: the ports that servers take, and the addresses of hosts.

Servers get one as an argument, so a simulation can give each of them a machine in memory. Connections come
from the event loop.
"""

import socket


class Ports:
    def listen(
        self, host: str, port: int, *, send_buffer_bytes: int = 0, receive_buffer_bytes: int = 0
    ) -> socket.socket:
        """Bind a port, without accepting connections yet; 0 lets the system choose. An OSError names it."""
        try:
            return _bound_socket(host or "0.0.0.0", port, send_buffer_bytes, receive_buffer_bytes)
        except OSError as problem:
            raise OSError(
                problem.errno, f"could not listen on {host}:{port}: {problem.strerror}"
            ) from problem

    def address_of(self, host: str) -> str:
        """The IPv4 address of a host, or the address itself. Raises OSError if there is none."""
        return socket.gethostbyname(host)


def _bound_socket(host: str, port: int, send_buffer_bytes: int, receive_buffer_bytes: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted sockets inherit these.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if send_buffer_bytes:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        if receive_buffer_bytes:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        listening.bind(address)
        # Several sockets may bind the same port until one of them listens.
        listening.listen()
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening
