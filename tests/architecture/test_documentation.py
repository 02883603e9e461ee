"""The documentation leads somewhere: every file it names or links to, and every heading, is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
FOLDERS = [
    ".github",
    "src",
    "tests",
    "tools",
    "benchmarks",
    "conf",
    "docs",
    "examples",
    "interop",
    "native",
    "deploy",
]
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
NAMED_FILE = re.compile(r"`([\w/.-]+\.(?:py|pyx|pyi|md|java|conf|sql|yml))`")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors_of(page: Path) -> set[str]:
    headings = HEADING.findall(CODE.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", each.lower()).strip().replace(" ", "-") for each in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in LINK.findall(CODE.sub("", page.read_text())):
        if "://" in link:
            continue
        place, _, anchor = link.partition("#")
        target = page.parent / place if place else page
        assert target.exists(), link
        assert not anchor or anchor in anchors_of(target), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_is_named_exists(page: Path, paths: str) -> None:
    for name in NAMED_FILE.findall(CODE.sub("", page.read_text())):
        assert f"/{name}\n" in paths, name


@pytest.fixture(scope="module")
def paths() -> str:
    """A line for each file of ours."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.*")]
    return "".join(f"{path}\n" for path in (*ROOT.glob("*.*"), *found))


def test_the_readme_shows_the_layers_of_the_tour() -> None:
    tour = re.search(r"^```\n7 .*?^```", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE | re.DOTALL)
    assert tour
    assert tour[0] in (ROOT / "README.md").read_text(), "copy it from ARCHITECTURE.md"


def test_a_page_is_filed_by_its_kind() -> None:
    """Only the landing page is at the top."""
    assert [page.name for page in (ROOT / "docs").glob("*.md")] == ["README.md"]


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    listed = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    generated = {page for page in pages if page.startswith("reference/api/") and page not in listed}
    assert listed == pages - generated, "list every page in mkdocs.yml"


def test_servers_that_are_told_to_demand_tls_are_told_to_speak_it() -> None:
    """A broker that only demands it cannot register."""
    page = (ROOT / "docs" / "concepts" / "security.md").read_text()
    blocks = re.findall(r"^```\w*\n(.*?)^```", page, re.M | re.S)
    demanding = [block for block in blocks if "tls.server.mode=enforcing" in block]
    assert demanding
    assert all("tls.enable=true" in block for block in demanding)


def test_no_page_capitalises_a_key() -> None:
    """Keys are case-sensitive: a page that says Tls.enable names nothing."""
    pages = sorted((ROOT / "docs" / "reference").glob("*-settings.md"))
    keys = {key for page in pages for key in re.findall(r"`([a-z][\w.]*)[`=]", page.read_text())}
    capitalised = {key[0].upper() + key[1:] for key in keys if not key.isalpha() or not key.islower()}
    found = {(page.name, word) for page in pages for word in re.findall(r"\b[A-Z][\w.]*\w", page.read_text())}
    assert {each for each in found if each[1] in capitalised} == set()


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/decisions/0*.md")), ids=lambda page: page.stem)
def test_a_decision_has_a_status_with_a_date(page: Path) -> None:
    assert re.search(
        r"^\*\*Status\.\*\* (Accepted|Replaced)\b.*\d{4}-\d\d-\d\d\.$", page.read_text(), re.MULTILINE
    )


def test_integration_tests_are_in_the_folder_of_what_they_test() -> None:
    assert [path.name for path in (ROOT / "tests" / "integration").glob("test_*.py")] == []
