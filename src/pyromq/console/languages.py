"""The texts of all pages: one catalogue a language, whole sentences with named gaps, never joined from
parts.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources

from pyromq.admin.attributes import GROUP, TOPIC

LANGUAGES = {"en": "English", "zh": "中文"}
DEFAULT_LANGUAGE = "en"


@cache
def catalogue(language: str) -> Mapping[str, str]:
    """Every text of a language by its dotted key."""
    source = resources.files("pyromq.console").joinpath("i18n", f"{language}.toml")
    texts = dict(_flat(tomllib.loads(source.read_text("utf-8"))))
    for each in (*TOPIC, *GROUP):
        if each.label is not None:
            label: str = getattr(each.label, language)
            texts[f"field.{each.form}"] = (
                texts["setting.other"].format(label=label) if each.same_as else label
            )
            for when in ("now", "wanted"):
                texts[f"row.{each.form}_{when}"] = texts[f"setting.{when}"].format(label=label)
    return texts


def _flat(table: Mapping[str, object], prefix: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for key, value in table.items():
        if isinstance(value, Mapping):
            found += _flat(value, f"{prefix}{key}.")
        else:
            found.append((prefix + key, str(value)))
    return found


class Texts:
    """`t("nav.topics")`; a key that does not exist is a mistake of ours, and raises."""

    def __init__(self, language: str) -> None:
        self.language = language
        self._texts = catalogue(language)

    def __repr__(self) -> str:
        return f"<Texts {self.language}>"

    def __call__(self, key: str, **gaps: object) -> str:
        text = self._texts[key]
        return text.format(**gaps) if gaps else text

    def __contains__(self, key: str) -> bool:
        return key in self._texts


def chosen_language(asked: str | None, kept: str | None, accepted: str) -> str:
    """The language of `?lang=`, then of the cookie, then the browser's."""
    for language in (asked, kept):
        if language in LANGUAGES:
            return language
    for part in accepted.split(","):
        language = part.partition(";")[0].strip().lower().partition("-")[0]
        if language in LANGUAGES:
            return language
    return DEFAULT_LANGUAGE
