"""Mirrors: brokers that copy a broker group of another cluster; how far they are, and their promotion."""

from typing import NamedTuple

from pyromq.admin import brokers
from pyromq.admin.cluster import Cluster
from pyromq.admin.failures import NotFound
from pyromq.protocol.requests.replication import PromoteMirror, PromoteMirrorAnswer

_PROMOTION_TIMEOUT_S = 20.0


class MirrorStatus(NamedTuple):
    """A mirror, by its own words. Offsets are those of the log."""

    of: str
    """The name servers of the cluster that it copies."""
    cluster: str
    master: str
    """Both empty until its master has answered."""
    epoch: int
    is_connected: bool
    log_end: int
    source_end: int
    """Where the other log ended when its master answered last."""
    behind_bytes: int
    heard_ms: int | None
    """When that was."""
    cut: tuple[int, int] | None
    """The part of its log that it has cut off, because the other one never had it."""
    problem: str


def status_of(figures: dict[str, str]) -> MirrorStatus | None:
    """From the figures of a broker; None if it is not a mirror."""
    if "mirrorOf" not in figures:
        return None

    def number(key: str) -> int:
        return int(figures.get(key, 0))

    return MirrorStatus(
        of=figures["mirrorOf"],
        cluster=figures.get("mirrorCluster", ""),
        master=figures.get("mirrorMaster", ""),
        epoch=number("mirrorEpoch"),
        is_connected=figures.get("mirrorIsConnected") == "true",
        log_end=number("commitLogMaxOffset"),
        source_end=number("mirrorLogEnd"),
        behind_bytes=number("mirrorBehindBytes"),
        heard_ms=number("mirrorHeardMs") or None,
        cut=(number("mirrorCutFrom"), number("mirrorCutTo")) if "mirrorCutFrom" in figures else None,
        problem=figures.get("mirrorProblem", ""),
    )


async def promote(
    cluster: Cluster, addresses: list[str], *, accept_loss: bool = False
) -> dict[str, PromoteMirrorAnswer]:
    """Promote those of these brokers that are mirrors, one after the other. The first one of a group becomes
    its master, so those that have most come first. Raises NotFound if there is none."""
    found = []
    for address in addresses:
        status = status_of(await brokers.runtime_info(cluster, address))
        if status is not None:
            found.append((-status.log_end, address))
    if not found:
        raise NotFound(f"{', '.join(addresses)}: none of these is a mirror")
    request = PromoteMirror(accept_loss=accept_loss)
    return {
        address: await cluster.ask(address, request, _PROMOTION_TIMEOUT_S) for _, address in sorted(found)
    }
