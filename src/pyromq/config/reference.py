"""The settings of a part as people read them: a reference page and an example file, both derived."""

from pyromq.config.options import Setting
from pyromq.config.settings import Settings, environment_variable


def markdown(part: type[Settings]) -> str:
    effective = [each for each in part.all_settings() if each.has_effect]
    ineffective = [each for each in part.all_settings() if not each.has_effect and each.name]
    inert = [each for each in part.all_settings() if not each.name]
    lines = [
        f"# Settings of {part.PART}",
        "",
        f"Made by `pyromq config {part.PART} --markdown`; edit the declarations, not this page.",
        "",
        "A value comes from the default, the file given with `-c`, the environment or the command line;",
        "the last of these that has one wins. *Live* settings act at once when changed over the network,",
        "the others after a restart. Those marked *never* cannot be changed over the network.",
        "",
        f"Every key has a variable in the environment: {_variables(part)}.",
        "",
        "| key | default | live | meaning | value |",
        "|---|---|---|---|---|",
        *map(_row, effective),
    ]
    if ineffective:
        lines += [
            "",
            "## Accepted, without effect",
            "",
            "RocketMQ knows these keys. They are read and checked, so that its files work as they are.",
            "",
            "| key | default | what it is in RocketMQ | value |",
            "|---|---|---|---|",
            *(
                f"| `{each.key}` | {_default(each)} | {each.sentence} | {each.expected} |"
                for each in ineffective
            ),
        ]
    if inert:
        lines += [
            "",
            "## Keys of RocketMQ without a counterpart",
            "",
            "They are accepted, checked and kept, so that its files work as they are.",
            "",
            *_by_reason([each for each in inert if each.check is None]),
        ]
        if refused := [each for each in inert if each.check is not None]:
            lines += [
                "",
                "## Keys of RocketMQ that are refused unless they have these values",
                "",
                *_by_reason(refused),
            ]
    return "\n".join(lines) + "\n"


def _by_reason(inert: list[Setting]) -> list[str]:
    groups: dict[str, list[str]] = {}
    for each in inert:
        groups.setdefault(each.sentence, []).append(f"`{each.key}={each.default_text}`")
    return [f"- {_capitalised(reason)}: {', '.join(keys)}" for reason, keys in groups.items()]


def _capitalised(reason: str) -> str:
    """The reason as a sentence. A key at its start keeps its letters: keys are case-sensitive."""
    first = reason.split(maxsplit=1)[0]
    is_key = "." in first or not first.islower()
    return reason if is_key else reason[0].upper() + reason[1:]


def example_file(part: type[Settings]) -> str:
    """A properties file in which every setting that has an effect stands with its sentence, commented out."""
    lines = [
        f"# Settings of {part.PART}, each with its default. Remove the # in front of a key to change it.",
        f"# Made by `pyromq config {part.PART} --example`.",
    ]
    for each in part.all_settings():
        if each.has_effect:
            lines += ["", f"# {each.sentence}", f"#{each.key}={each.default_text}"]
    return "\n".join(lines) + "\n"


def _variables(part: type[Settings]) -> str:
    typical = [key for key in ("listenPort", "tls.server.mode", "storePathRootDir") if part.find(key)]
    keys = typical or [each.key for each in part.all_settings()[:1]]
    return ", ".join(f"`{environment_variable(part, key)}` for `{key}`" for key in keys)


def _row(each: Setting) -> str:
    meaning = each.sentence
    if each.environment:
        meaning += f" The variable `{each.environment}` sets the default."
    live = "never" if each.is_local else "yes" if each.mutable else ""
    return f"| `{each.key}` | {_default(each)} | {live} | {meaning} | {each.expected} |"


def _default(each: Setting) -> str:
    return f"`{each.default_text}`" if each.default_text else ""
