"""What docs/reference/compatibility.md says of requests is what the code says."""

from tools.compatibility_page import MARK, PAGE, whole_page


def test_the_page_of_compatibility_is_fresh() -> None:
    assert MARK in PAGE.read_text("utf-8")
    assert PAGE.read_text("utf-8") == whole_page(), "python -m tools.compatibility_page"
