"""The request codes that Apache has a name for and this catalogue has none, each with the reason."""

_NEVER_SERVED = "reserved; no RocketMQ server has a handler for it"
_FILTER_SERVER = "belongs to the filter servers, which RocketMQ no longer has"
_BETWEEN_CONTROLLERS = "spoken only between Apache's controllers, over their own replicated log"

UNDECLARED: dict[int, str] = {
    13: _NEVER_SERVED,
    22: _NEVER_SERVED,
    23: _NEVER_SERVED,
    27: _NEVER_SERVED,
    47: _NEVER_SERVED,
    54: "reads accounts with their secret keys; only 5.0 to 5.2 had it, users and access lists replaced it",
    209: _NEVER_SERVED,
    210: _NEVER_SERVED,
    211: _NEVER_SERVED,
    212: _NEVER_SERVED,
    213: _NEVER_SERVED,
    214: _NEVER_SERVED,
    301: _FILTER_SERVER,
    302: _FILTER_SERVER,
    1014: _BETWEEN_CONTROLLERS,
    1015: _BETWEEN_CONTROLLERS,
    1016: _BETWEEN_CONTROLLERS,
    1017: _BETWEEN_CONTROLLERS,
    1018: _BETWEEN_CONTROLLERS,
}
