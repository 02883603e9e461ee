"""The request codes that Apache has a name for and this catalogue has none, each with the reason."""

_NEVER_SERVED = "reserved; no RocketMQ server has a handler for it"
_ACK_LITE = "no RocketMQ server has a handler for it: AckMessage acknowledges messages of lite topics, too"
_BETWEEN_CONTROLLERS = "spoken only between Apache's controllers, over their own replicated log"

UNDECLARED: dict[int, str] = {
    **dict.fromkeys((13, 22, 23, 27, 47, *range(209, 215)), _NEVER_SERVED),
    54: "reads accounts with their secret keys; only 5.0 to 5.2 had it, users and access lists replaced it",
    **dict.fromkeys(range(1014, 1019), _BETWEEN_CONTROLLERS),
    5001: "moves timed messages of 5.5 between its files and RocksDB; here they are always in the files",
    200072: _ACK_LITE,
}
