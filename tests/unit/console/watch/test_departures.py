from pyromq.admin.cluster import BrokerMember
from pyromq.console.watch.departures import BrokerDepartures

DAY_MS = 24 * 3_600_000


def member(address: str, broker_id: int = 0, name: str = "a") -> BrokerMember:
    return BrokerMember("c", name, broker_id, address)


def follow(
    departures: BrokerDepartures, before: list[BrokerMember], now: list[BrokerMember], now_ms: int
) -> list[str]:
    told = dict.fromkeys((each.address for each in before), now_ms - 1)
    departures.follow(before, {each.address: each for each in now}, told, now_ms)
    return [f"{view.key} {view.address}" for view in departures.views()]


def test_a_broker_that_left_is_named_until_its_address_is_back() -> None:
    departures, one, two = BrokerDepartures(), member("h:1"), member("h:2", name="b")
    assert follow(departures, [], [one, two], 1) == []
    assert follow(departures, [one, two], [two], 5) == ["a/0 h:1"]
    assert departures.views()[0].told_ms == 4
    assert follow(departures, [two], [two], 6) == ["a/0 h:1"]
    assert departures.views()[0].since_ms == 5
    assert follow(departures, [two], [two, one], 7) == []


def test_a_master_that_was_replaced_is_named_until_its_group_is_whole() -> None:
    departures, master, replica = BrokerDepartures(), member("h:1"), member("h:2", 2)
    promoted, newcomer = member("h:2"), member("h:3", 3)
    assert follow(departures, [master, replica], [promoted], 5) == ["a/0 h:1"]
    assert follow(departures, [promoted], [promoted, newcomer], 6) == []


def test_it_is_forgotten_after_a_day() -> None:
    departures, one = BrokerDepartures(), member("h:1")
    assert follow(departures, [one], [], 5) == ["a/0 h:1"]
    assert follow(departures, [], [], 4 + DAY_MS) == ["a/0 h:1"]
    assert follow(departures, [], [], 5 + DAY_MS) == []
