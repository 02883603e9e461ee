from pyromq.nameserver.watch import Watches


class Signal:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def test_only_watched_topics_are_told_and_only_to_those_who_watch() -> None:
    watches = Watches[str](Signal())
    watches.add("t", "k")
    watches.add("u", "l")
    watches.note([["t", "x"]])
    assert watches.take_pending() == {"k": ["t"]}
    assert watches.take_pending() == {}


def test_one_signal_for_all_changes_until_they_are_taken() -> None:
    signal = Signal()
    watches = Watches[str](signal)
    watches.add("t", "k")
    watches.add("u", "k")
    watches.note([["x"]])
    assert signal.count == 0
    watches.note([["t"], ["u"]])
    watches.note([["t"]])
    assert signal.count == 1
    assert watches.take_pending() == {"k": ["t", "u"]}
    watches.note([["t"]])
    assert signal.count == 2


def test_many_changed_and_few_watched_topics() -> None:
    watches = Watches[str](Signal())
    watches.add("t5", "k")
    watches.note([{f"t{number}": None for number in range(1000)}])
    assert watches.take_pending() == {"k": ["t5"]}


def test_a_connection_watches_only_so_many_topics() -> None:
    watches = Watches[str](Signal(), max_per_connection=2)
    assert watches.add("t", "k")
    assert watches.add("u", "k")
    assert not watches.add("v", "k")
    assert watches.add("t", "k"), "what it watches already is no news"
    assert watches.add("v", "l")
    assert len(watches) == 3


def test_there_is_a_limit_for_all_connections_together() -> None:
    watches = Watches[str](Signal(), max_in_total=2)
    assert watches.add("t", "k")
    assert watches.add("t", "l")
    assert not watches.add("t", "m")
    watches.forget("k")
    assert watches.add("t", "m")


def test_a_refused_connection_leaves_no_trace() -> None:
    watches = Watches[str](Signal(), max_per_connection=0)
    assert not watches.add("t", "k")
    assert watches.connections == 0


def test_a_forgotten_connection_is_told_nothing_more() -> None:
    watches = Watches[str](Signal())
    watches.add("t", "k")
    watches.add("t", "l")
    watches.note([["t"]])
    watches.forget("k")
    assert watches.take_pending() == {"l": ["t"]}
    watches.forget("l")
    watches.forget("never seen")
    watches.note([["t"]])
    assert watches.take_pending() == {}
    assert (len(watches), watches.connections) == (0, 0)


def test_everything_watched_can_be_told() -> None:
    watches = Watches[str](Signal())
    watches.add("t", "k")
    watches.add("u", "l")
    watches.note_everything()
    assert watches.take_pending() == {"k": ["t"], "l": ["u"]}
