"""How much one request may bring that changes settings, and how unknown names are answered."""

import pytest

from pyromq.config.changes import MAX_CHANGE_CHARS, MAX_CHANGE_LINES, MAX_UNKNOWN_KEYS, parse_changes
from pyromq.config.loading import MAX_UNKNOWN_NOTICES, Layer, load
from pyromq.config.nearest import NearestName
from pyromq.config.settings import Notice, UnknownKey
from pyromq.errors import ConfigError
from pyromq.nameserver.settings import NameServerSettings


def _unknown(count: int) -> str:
    return "".join(f"unknown{number}=1\n" for number in range(count))


def test_a_few_unknown_keys_are_taken_along() -> None:
    changes = parse_changes(_unknown(MAX_UNKNOWN_KEYS) + "known=2\n", {"known"}.__contains__)
    assert len(changes) == MAX_UNKNOWN_KEYS + 1
    assert changes["known"] == "2"


def test_many_unknown_keys_are_refused_and_the_first_ones_are_named() -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_changes(_unknown(MAX_UNKNOWN_KEYS + 1), {"known"}.__contains__)
    assert str(refusal.value) == (
        "request=17 unknown settings (unknown0, unknown1, unknown2, …):"
        " expected at most 16 of them; nothing was changed"
    )


def test_many_known_keys_are_no_trouble() -> None:
    assert len(parse_changes(_unknown(1000), lambda key: True)) == 1000


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a=" + "x" * MAX_CHANGE_CHARS, "65538 characters: expected at most 65536"),
        ("a\n" * (MAX_CHANGE_LINES + 1), "2049 lines: expected at most 2048"),
        ("\r" * (MAX_CHANGE_LINES + 1), "2049 lines: expected at most 2048"),
    ],
)
def test_a_long_request_is_refused_before_it_is_parsed(
    text: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyromq.config.properties.parse", lambda text: pytest.fail("parsed"))
    with pytest.raises(ConfigError, match=problem):
        parse_changes(text, lambda key: True)


def test_the_nearest_name_is_compared_with_a_few_candidates_only(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    def first(word: str, candidates: list[str], n: int) -> list[str]:
        compared.append(len(candidates))
        return candidates[:n]

    names = NearestName([*(f"someSetting{number}" for number in range(500)), "listenPort"])
    monkeypatch.setattr("difflib.get_close_matches", first)
    assert names.find("lisenPort") == "listenPort"
    assert names.find("x" * 1000) is None
    assert compared == [12]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("lisstenPort", "listenPort"),
        ("LISTENPORT", "listenPort"),
        ("flushDiskTyp", "flushDiskType"),
        ("typeFlushDisk", "flushDiskType"),
        ("zzz", None),
        ("", None),
    ],
)
def test_the_nearest_name_is_found_or_none(written: str, meant: str | None) -> None:
    assert NearestName(["listenPort", "flushDiskType", "maxMessageSize"]).find(written) == meant


def test_a_file_of_many_unknown_keys_is_told_about_in_a_few_notices() -> None:
    values = {f"unknown{number}": "1" for number in range(10_000)}
    loaded = load(NameServerSettings, [Layer("big.conf", values, is_file=True)])
    unknown = [notice for notice in loaded.notices if isinstance(notice, UnknownKey)]
    assert len(unknown) == MAX_UNKNOWN_NOTICES
    assert loaded.notices[-1] == Notice("9984 more unknown settings from big.conf")
    assert loaded.settings.unrecognised == values
