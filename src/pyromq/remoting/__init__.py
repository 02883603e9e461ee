"""Sockets and the event loop: typed requests and answers over shared, duplex connections."""
