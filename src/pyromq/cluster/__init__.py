"""Access to a cluster: which name server to ask, what a route means, how requests are signed.

Clients, admin, Spark and servers share it. `name_servers`, `routes` and `signing` are pure; `aio` asks from
an event loop, `blocking` from a thread that may wait.
"""
