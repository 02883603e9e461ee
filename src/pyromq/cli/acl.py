"""`pyromq acl check` says whether a user may do something, and which rule decides."""

from pathlib import Path
from typing import Annotated

import click

from pyromq.admin import access
from pyromq.admin.cluster import Cluster
from pyromq.cli.mqadmin.options import Broker, option
from pyromq.cli.mqadmin.output import Output
from pyromq.cli.mqadmin.report import done
from pyromq.cli.mqadmin.running import address_of, admin_command
from pyromq.clock import SystemClock
from pyromq.protocol.needs import Need
from pyromq.remoting.access.account_files import AccountFiles
from pyromq.security.decision import Decision

_REFUSED = 3


@admin_command("check")
async def check(
    cluster: Cluster,
    out: Output,
    user: str,
    action: str,
    resource: str,
    source: Annotated[str, option("--from", "The address that the request comes from.")] = "127.0.0.1",
    acl_file: Annotated[
        Path | None,
        option(
            "--acl-file", "Ask this file of access control 1.0, and those in the directory acl next to it."
        ),
    ] = None,
    broker: Broker = None,
) -> None:
    """Show whether USER may do ACTION on RESOURCE, and which rule decides.

    It asks a broker for the user and its policies, or a file of access control 1.0. It exits with 3 if the
    request would be refused.

    \b
    Examples:
      pyromq acl check alice Pub Topic:orders -b 127.0.0.1:10911 --key-file admin.properties
      pyromq acl check orders-service Sub Group:shop --acl-file conf/plain_acl.yml
    """
    need = access.need_in(action, resource)
    if acl_file is not None:
        decision = _decided_by_file(acl_file, user, need, source)
    elif broker is not None:
        decision = await access.check(cluster, await address_of(cluster, broker), user, need, source)
    else:
        raise click.UsageError("give -b BROKER, or --acl-file FILE")
    word = "allowed" if decision.is_allowed else "refused"
    out.show(done(f"{word}: {decision.rule}", allowed=decision.is_allowed, rule=decision.rule))
    if not decision.is_allowed:
        raise SystemExit(_REFUSED)


def _decided_by_file(path: Path, user: str, need: Need, source: str) -> Decision:
    files = AccountFiles(path, SystemClock().now_ms)
    return files.load().decide(user, need, source)


check.params[:0] = [click.Argument([name]) for name in ("user", "action", "resource")]

acl = click.Group(
    "acl",
    {"check": check},
    help="Query access control.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
