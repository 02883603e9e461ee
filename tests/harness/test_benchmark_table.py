"""The last table of `make bench`: where a peer is ahead."""

from benchmarks.behind import cells, table

CLIENTS = {
    "loads": {
        "send 100 B": {
            "pyromq": {"rate": 200.0, "cpu_us": 3.0, "failed": 1},
            "apache-5.3.3": {"rate": 100.0, "cpu_us": 2.0, "failed": 0},
        },
        "ours alone": {"pyromq": {"rate": 5.0, "cpu_us": 1.0, "failed": 0}},
    }
}
NAME_SERVERS = {
    "results": {
        "pyromq": {"route: per s": [10.0, 20.0], "route: p99 µs": [5.0, 5.0], "memory, MB RSS": [4.0]},
        "apache-5.3.3": {"route: per s": [20.0, 40.0], "route: p99 µs": [9.0, 9.0], "memory, MB RSS": [9.0]},
        "loadgen": {"route: per s": [99.0]},
    }
}
BROKERS = {
    "samples": [
        {"load": "sync 1 × 1", "server": "pyromq", "rounds": [{"rate": 3.0, "p50": 4.0}]},
        {"load": "sync 1 × 1", "server": "apache-5.3.3", "rounds": [{"rate": 2.0, "p50": 3.0}]},
    ],
    "figures": {
        "memory, MB RSS": {"pyromq": [200.0], "apache-5.3.3": [100.0]},
        "woken by": {"pyromq": [9], "apache-5.3.3": [1]},
    },
}
REPLICATION = {
    "sync": {
        "1,024 B, 8 × 8": {
            "pyromq": [{"rate": 30.0, "p99": 4.0}, {"rate": 20.0, "p99": 6.0}],
            "apache-5.3.3": [{"rate": 10.0, "p99": 2.0}, {"rate": 10.0, "p99": 3.0}],
        }
    },
    "streams": {
        "plain socket": [{"stream MiB/s": 99.0}],
        "pyromq": [{"stream MiB/s": 9.0, "stream CPU ms/MiB": 2.0}],
        "apache-5.3.3": [{"stream MiB/s": 12.0, "stream CPU ms/MiB": 4.0}],
    },
}
ACCESS = {
    "pyromq": [{"open": [1.0, 3.0], "known": [4.0, 4.0]}, {"open": [2.0, 2.0], "known": [6.0, 6.0]}],
    "apache-5.3.3": [{"open": [3.0, 3.0], "known": [4.0, 4.0]}],
}


def test_a_peer_is_ahead_with_a_higher_rate_or_less_of_anything_else() -> None:
    found = [cell for document in (CLIENTS, NAME_SERVERS, BROKERS) for cell in cells(document)]
    behind = [(cell.load, cell.figure, round(cell.ratio, 2)) for cell in found if cell.is_behind]
    assert behind == [
        ("send 100 B", "cpu_us", 1.5),
        ("route", "per s", 0.5),
        ("sync 1 × 1", "p50", 1.33),
        ("memory, MB RSS", "", 2.0),
    ]
    assert "A peer is ahead in 4 of 8 figures." in table(found)


def test_rounds_and_turns_are_compared_by_their_medians_and_plain_programs_not_at_all() -> None:
    found = [cell for document in (REPLICATION, ACCESS) for cell in cells(document)]
    behind = [(cell.load, cell.figure, round(cell.ratio, 2)) for cell in found if cell.is_behind]
    assert behind == [
        ("1,024 B, 8 × 8", "p99", 2.0),
        ("a log that is copied", "stream MiB/s", 0.75),
        ("access control: known", "cpu_us", 1.25),
    ]
    assert len(found) == 6


def test_without_such_a_cell_we_are_ahead_everywhere() -> None:
    ahead = [cell for cell in cells(NAME_SERVERS) if not cell.is_behind]
    assert table(ahead) == "ahead everywhere: 2 figures compared"
    assert table([]) == "no peer could be had: nothing was compared"
