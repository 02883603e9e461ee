"""All that a user reads is in plain words: settings, help, console, errors, pages. The list only shrinks."""

import pytest
from tools.plain_words import Text, allowed, counts, judge, paragraphs, sentences


def test_no_file_has_more_stumbling_blocks_than_it_had() -> None:
    entries = allowed()
    risen = {path: (count, entries.get(path, 0)) for path, count in counts().items()}
    worse = {path: pair for path, pair in risen.items() if pair[0] > pair[1]}
    assert not worse, "found, allowed; `python -m tools.plain_words FILE` shows the sentences"


def test_an_entry_of_the_allow_list_falls_with_its_file() -> None:
    found = counts()
    better = {path: (found.get(path, 0), count) for path, count in allowed().items()}
    stale = {path: pair for path, pair in better.items() if pair[0] < pair[1]}
    assert not stale, "found, allowed; `python -m tools.plain_words --write` lowers the entries"


@pytest.mark.parametrize(
    "words",
    [
        "The broker is told the address.",
        "A topic that nobody reads.",
        "This is no broker.",
        "It has a port of its own.",
        "Faster beside Kafka.",
        "After so many failures.",
        "The stream goes on.",
        "What is not written is lost.",
        "Who asks gets an answer.",
        " ".join(["word"] * 31),
    ],
)
def test_the_old_flavour_is_found(words: str) -> None:
    assert len(list(judge(Text("", words)))) == 1


def test_plain_words_pass() -> None:
    for words in (
        "There is no such topic. The group is no longer known.",
        "What is the master?",
        "They are checked.",
        " ".join(["word"] * 30),
    ):
        assert not list(judge(Text("", words)))


def test_a_setting_does_not_lean_on_its_neighbour() -> None:
    assert list(judge(Text("", "They are checked.", is_setting=True)))
    assert not list(judge(Text("", "Certificates are checked.", is_setting=True)))


def test_sentences_end_at_full_stops_only() -> None:
    assert sentences("Needs 3.11 or later; e.g. this. `a.b` is a key. Done!") == [
        "Needs 3.11 or later; e.g. this.",
        "`a.b` is a key.",
        "Done!",
    ]


def test_code_is_not_prose_and_a_cell_stands_alone() -> None:
    page = "# Title\n\nOne\ntwo.\n\n```\ncode\n```\n- item\n  more\n\n| a b | [c](d) |\n|---|---|\n"
    assert paragraphs(page) == ["Title", "One two.", "item more", "a b", "c", "---", "---"]
