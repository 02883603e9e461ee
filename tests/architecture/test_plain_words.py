"""All that a user reads is in plain words: settings, help, console, errors, pages; so are docstrings."""

import pytest
from tools.plain_words import Text, findings, judge, paragraphs, sentences


def test_every_text_is_in_plain_words() -> None:
    assert not findings(), "`python -m tools.plain_words FILE` shows those of one file"


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
        "The message comes again.",
        "Tags are left out.",
        "The file has to be there.",
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


def test_docstrings_and_comments_may_have_long_sentences_but_not_these_words() -> None:
    assert not list(judge(Text("", " ".join(["What", *["word"] * 30, "ends."]), is_inside=True)))
    assert list(judge(Text("", "The broker is told the address.", is_inside=True)))


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
