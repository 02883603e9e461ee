"""Where the cluster is and how the transport works: from the broker's URL and `broker_transport_options`.

An option of the URL's query wins. A URL that kombu took to pieces (an alternate, after a failure) is put
together again.
"""

import logging
import ssl
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

import msgspec

from pyromq.client.settings import ClientSettings
from pyromq.cluster.connection_url import URL_OPTIONS
from pyromq.config.nearest import NearestName
from pyromq.errors import ConfigError
from pyromq.remoting.tls import TlsOptions
from pyromq.tasks.options import TaskOptions, task_options

SCHEME, TLS_SCHEME = "rocketmq", "rocketmqs"
DEFAULT_PORT = 9876
_MASK = "**"
_OF_KOMBU = frozenset(
    {
        *("max_retries", "interval_start", "interval_step", "interval_max"),
        *("connect_retries_timeout", "errback", "callback"),
    }
)
"""Options of connections over any transport. `max_retries` is of these: how often kombu tries to connect."""
_told: set[str] = set()

_log = logging.getLogger(__name__)


class TransportOptions(TaskOptions, frozen=True, kw_only=True):
    namespace: str | None = None
    """Prefix of every topic and group, so that projects can share a cluster."""
    native_delay: bool = True
    """Tasks with an ETA wait at the broker, not in a worker."""
    recall: bool = False
    """`revoke` takes a task back that waits at the broker. Each of them costs one more message."""
    transactional: bool = False
    """A task that is sent in a transaction of Django runs if, and only if, that commits."""
    database: str = "default"
    """Django's alias of the database whose transactions count."""


class ClusterTarget(msgspec.Struct, frozen=True):
    """A cluster, and how to use it."""

    settings: ClientSettings
    options: TransportOptions

    @property
    def client_options(self) -> dict[str, Any]:
        """Arguments of every client of the cluster."""
        settings = self.settings
        return {
            "namesrv": settings.namesrv,
            "namespace": settings.namespace,
            "credentials": settings.credentials,
            "tls": settings.tls,
        }


def target_of(client: Any) -> ClusterTarget:
    """For a `kombu.Connection`."""
    tls = _tls(client.ssl) if client.ssl else None
    return target_at(whole_url(client), client.transport_options or {}, tls)


def target_at(url: str, options: Mapping[str, Any], tls: TlsOptions | None = None) -> ClusterTarget:
    """For a URL, whose name servers may be without a port."""
    scheme, _, rest = url.partition("://")
    place, _, query = rest.partition("?")
    given = dict(options)
    known = set(TransportOptions.__struct_fields__)
    _tell_unknown(given, known)
    asked = parse_qsl(query, keep_blank_values=True)
    for name, _ in asked:
        if name not in known and name not in URL_OPTIONS:
            hint = NearestName({*known, *URL_OPTIONS}).hint(name, f"there are {', '.join(sorted(known))}")
            raise ConfigError("broker_url", f"?{name}", f"an option; {hint}")
    given |= {name: value for name, value in asked if name in known}
    chosen = {name: value for name, value in given.items() if name in known}
    wanted = task_options(chosen, TransportOptions, "broker_transport_options")
    left = urlencode([(name, value) for name, value in asked if name not in known])
    if tls is None and scheme == TLS_SCHEME:
        tls = TlsOptions()
    settings = ClientSettings.of(
        f"{SCHEME}://{_with_ports(place)}" + (f"?{left}" if left else ""), tls=tls, namespace=wanted.namespace
    )
    return ClusterTarget(settings, wanted)


def _with_ports(place: str) -> str:
    keys, mark, hosts = place.rstrip("/").rpartition("@")
    hosts, slash, space = hosts.partition("/")
    each_with = (
        each if each.rpartition(":")[2].isdigit() else f"{each}:{DEFAULT_PORT}"
        for each in (hosts or "127.0.0.1").split(",")
    )
    return f"{keys}{mark}{','.join(each_with)}{slash}{space}"


def _tell_unknown(given: Mapping[str, Any], known: Collection[str]) -> None:
    """Not refused: the alternate broker of a URL may know them. Once in a process."""
    for name in given.keys() - known - _OF_KOMBU - _told:
        _told.add(name)
        hint = NearestName(known).hint(name, "see the page about Celery")
        _log.warning("broker_transport_options has %s, which means nothing to rocketmq: %s", name, hint)


def whole_url(client: Any) -> str:
    host = client.hostname or ""
    keys = (
        f"{quote(client.userid, safe='')}:{quote(client.password or '', safe='')}@" if client.userid else ""
    )
    if "://" in host:
        scheme, _, rest = host.partition("://")
        return f"{scheme}://{keys if '@' not in rest else ''}{rest or f'127.0.0.1:{DEFAULT_PORT}'}"
    space = (client.virtual_host or "").strip("/")
    scheme = client.transport_cls if client.transport_cls in (SCHEME, TLS_SCHEME) else SCHEME
    return f"{scheme}://{keys}{host or '127.0.0.1'}:{client.port or DEFAULT_PORT}/{space}"


def without_keys(url: str) -> tuple[str, str | None, str | None]:
    """The URL without user and secret, and both of them: kombu shows the URL to whoever asks a worker."""
    scheme, mark, rest = url.partition("://")
    user, has_user, place = rest.rpartition("@")
    if not mark or not has_user:
        return url, None, None
    name, _, secret = user.partition(":")
    return f"{scheme}://{place}", unquote(name), unquote(secret)


def masked(url: str, user: str | None, secret: str | None, mask: str = _MASK) -> str:
    scheme, _, rest = url.partition("://")
    shown = f"{quote(user, safe='')}:{mask if secret is None else quote(secret, safe='')}@" if user else ""
    return f"{scheme}://{shown}{rest}"


def _tls(given: Any) -> TlsOptions:
    """From `broker_use_ssl`."""
    if not isinstance(given, Mapping):
        return TlsOptions()

    def path(*names: str) -> Path | None:
        return next((Path(given[name]) for name in names if given.get(name)), None)

    trust = path("ca_certs", "ssl_ca_certs")
    needed = given.get("cert_reqs", given.get("ssl_cert_reqs"))
    return TlsOptions(
        certificate_path=path("certfile", "ssl_certfile"),
        key_path=path("keyfile", "ssl_keyfile"),
        trust_path=trust,
        verify=trust is not None and needed is not ssl.CERT_NONE,
    )
