import re
from importlib import resources
from pathlib import Path
from string import Formatter

import msgspec
import pytest

from pyromq.console.languages import LANGUAGES, Texts, catalogue, chosen_language
from pyromq.console.operations.all_operations import OPERATIONS
from pyromq.console.watch import problems
from pyromq.console.watch.values import BrokerKind, GroupState, Severity

CONSOLE = Path(str(resources.files("pyromq.console")))
KEY = re.compile(r"""\b(?:t|texts)\(\s*["']([a-z_]+(?:\.[A-Za-z_.-]+)?)["']\s*[,)]""")


def gaps(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name}


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_the_same_texts_with_the_same_gaps(language: str) -> None:
    english, other = catalogue("en"), catalogue(language)
    assert other.keys() == english.keys()
    assert [key for key in english if gaps(english[key]) != gaps(other[key])] == []
    assert all(text.strip() for text in other.values())


def test_every_text_that_a_page_uses_exists() -> None:
    used = {
        key
        for path in (*CONSOLE.rglob("*.html"), *CONSOLE.rglob("*.py"))
        for key in KEY.findall(path.read_text())
    }
    assert len(used) > 150
    assert used - catalogue("en").keys() == set()


def test_every_field_option_problem_and_state_has_its_text() -> None:
    wanted = {f"problem.{kind}" for kind in problems.KINDS}
    wanted |= {f"state.{state}" for state in GroupState} | {f"severity.{each}" for each in Severity}
    wanted |= {f"source.{source}" for source in BrokerKind}
    for kind in OPERATIONS.values():
        wanted.add(f"do.{kind.NAME}")
        wanted |= {f"field.{field.name}" for field in msgspec.structs.fields(kind)}
    assert wanted - catalogue("en").keys() == set()


def test_the_language_is_that_of_the_url_then_of_the_cookie_then_of_the_browser() -> None:
    assert chosen_language("zh", "en", "en") == "zh"
    assert chosen_language("xx", "zh", "en") == "zh"
    assert chosen_language(None, None, "fr-FR,zh-CN;q=0.8,en;q=0.5") == "zh"
    assert chosen_language(None, None, "fr") == "en"


def test_gaps_are_filled() -> None:
    assert Texts("en")("list.page", page=2, pages=7) == "Page 2 of 7"
    with pytest.raises(KeyError):
        Texts("en")("no.such.key")
