"""Chooses the master of a group whose brokers come with logs while the controller has no record of it.

The controller's store was lost, or is another one. Of all brokers of a group, the one with the newest epoch,
and among those the one with the longest log, has everything that was acknowledged. That is certain only if
none of them is missing. So every broker that one of them has heard of must offer its log, after the last of
them has started; or, if a master of the newest epoch still runs, all that it waits for: the lost record can
have made no other broker master. Until then only an operator can choose.
"""

from collections.abc import Mapping

from pyromq.controller.groups import Offer

EPOCH_GAP = 1000
"""The lost record may have had newer epochs, and a broker may hear of one of them only now."""


def best_of(offers: Mapping[int, Offer]) -> int:
    """The broker that has most; a running master may have more by now than it has offered."""

    def rank(broker_id: int) -> tuple[int, bool, int, int]:
        offer = offers[broker_id]
        return offer.epoch, bool(offer.awaited), offer.log_end, -broker_id

    return max(offers, key=rank)


def known_to(offers: Mapping[int, Offer]) -> frozenset[int]:
    """All brokers of the group that any of these has heard of."""
    return frozenset().union(*(each.members | each.awaited for each in offers.values()))


def uncertainty(offers: Mapping[int, Offer]) -> str:
    """Why another broker may have more than the best of these; empty if none has."""
    if not offers:
        return "no broker has offered its log yet"
    best_id = best_of(offers)
    best = offers[best_id]
    if not best.awaited and not best.members:
        return f"broker {best_id}, which has most, does not know which others there are"
    absent = sorted((best.awaited or known_to(offers)) - offers.keys())
    return f"brokers {absent} have not offered their logs yet" if absent else ""
