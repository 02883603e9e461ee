"""The part of docs/reference/compatibility.md that follows from the code: which requests are served.

python -m tools.compatibility_page    (writes that part anew)
"""

from collections.abc import Mapping
from pathlib import Path

import pyromq.protocol.requests  # noqa: F401  (fills the catalogue)
from pyromq.broker.unserved import UNSERVED as UNSERVED_BY_BROKER
from pyromq.controller.controller import UNSERVED as UNSERVED_BY_CONTROLLER
from pyromq.filterserver.filter_server import UNSERVED as UNSERVED_BY_FILTER_SERVER
from pyromq.nameserver.nameserver import UNSERVED as UNSERVED_BY_NAME_SERVER
from pyromq.protocol.catalogue import (
    BROKER,
    CATALOGUE,
    CONTROLLER,
    FILTER_SERVER,
    NAMESERVER,
    Declaration,
    Peer,
)
from pyromq.protocol.requests.undeclared import UNDECLARED

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "compatibility.md"
MARK = "<!-- From here on: `python -m tools.compatibility_page` -->\n"


def written_by_hand() -> str:
    return PAGE.read_text("utf-8").partition(MARK)[0]


def whole_page() -> str:
    return written_by_hand() + MARK + generated()


def generated() -> str:
    return "\n".join(
        [
            "\n## Requests\n",
            "Fields and bodies of each are in [the reference](requests.md).\n",
            *_server("NameServer", NAMESERVER, UNSERVED_BY_NAME_SERVER),
            *_server("Broker", BROKER, UNSERVED_BY_BROKER),
            *_server("Controller", CONTROLLER, UNSERVED_BY_CONTROLLER),
            *_server("Filter server", FILTER_SERVER, UNSERVED_BY_FILTER_SERVER),
            "### Codes without a declaration\n",
            "Apache has names for these codes; no server of ours knows them.\n",
            "| codes | why |",
            "|---|---|",
            *_undeclared(),
            "",
        ]
    )


def _server(title: str, peer: Peer, unserved: Mapping[int, str]) -> list[str]:
    addressed = [CATALOGUE[code] for code in sorted(CATALOGUE) if CATALOGUE[code].to & peer]
    served = [declaration for declaration in addressed if declaration.code not in unserved]
    lines = [
        f"### {title}\n",
        f"Served: {len(served)} of {len(addressed)}. An asterisk marks our own extensions.\n",
        ", ".join(map(_name, served)) + ".\n",
    ]
    if not unserved:
        return lines
    by_reason: dict[str, list[Declaration]] = {}
    for declaration in addressed:
        if declaration.code in unserved:
            by_reason.setdefault(unserved[declaration.code], []).append(declaration)
    rows = [f"| {', '.join(map(_name, group))} | {reason} |" for reason, group in by_reason.items()]
    return [
        *lines,
        "Not served: the answer is `REQUEST_CODE_NOT_SUPPORTED` with the reason as its remark.\n",
        "| requests | why |",
        "|---|---|",
        *rows,
        "",
    ]


def _undeclared() -> list[str]:
    by_reason: dict[str, list[int]] = {}
    for code, reason in sorted(UNDECLARED.items()):
        by_reason.setdefault(reason, []).append(code)
    return [f"| {', '.join(map(str, codes))} | {reason} |" for reason, codes in by_reason.items()]


def _name(declaration: Declaration) -> str:
    return f"`{declaration.code} {declaration.name}{'*' if declaration.extension else ''}`"


def main() -> None:
    PAGE.write_text(whole_page(), "utf-8")


if __name__ == "__main__":
    main()
