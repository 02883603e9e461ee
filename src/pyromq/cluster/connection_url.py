"""Where a cluster is and how to get in: `rocketmq://user:secret@host:9876,host2:9876/namespace?tls=true`.

Clients and commands take it where they take name servers, and from PYROMQ_URL. Keys may be in a file, or in
the environment, so that they need not be in the URL. An option of the program wins over the URL, and the URL
over other variables.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, unquote

from pyromq.errors import ConfigError
from pyromq.remoting.tls import TlsOptions
from pyromq.security.signature import Credentials, credentials_from_text

SCHEME = "rocketmq://"
URL_VARIABLE, ADDRESS_VARIABLE = "PYROMQ_URL", "NAMESRV_ADDR"
ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE = "PYROMQ_ACCESS_KEY", "PYROMQ_SECRET_KEY"
KEY_FILE_VARIABLE, TRUST_VARIABLE = "PYROMQ_KEY_FILE", "PYROMQ_TLS_TRUST"

_EXPECTED = "rocketmq://user:secret@host:9876,host2:9876/namespace?tls=true"
URL_OPTIONS = ("tls", "tls_trust", "tls_certificate", "tls_key", "key_file")
_YES = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class ConnectionUrl:
    """The parts of a URL; `namesrv` has addresses separated by semicolons."""

    namesrv: str
    namespace: str | None = None
    credentials: Credentials | None = None
    tls: TlsOptions | None = None

    @classmethod
    def parse(cls, text: str) -> "ConnectionUrl":
        """Raises ConfigError, without the secret; a text without the scheme is a list of name servers."""
        if not text.startswith(SCHEME):
            return cls(text)
        place, _, query = text.removeprefix(SCHEME).partition("?")
        place, _, namespace = place.partition("/")
        user, _, hosts = place.rpartition("@")
        shown = f"{SCHEME}{hosts}"
        access_key, has_secret, secret = user.partition(":")
        if not hosts or "/" in namespace or (user and not (access_key and has_secret and secret)):
            raise ConfigError("url", shown, f"a URL like {_EXPECTED}")
        given = dict(parse_qsl(query, keep_blank_values=True))
        for name in given:
            if name not in URL_OPTIONS:
                raise ConfigError("url", f"{shown}?{name}", f"one of {', '.join(URL_OPTIONS)}")
        credentials = Credentials(unquote(access_key), unquote(secret)) if user else None
        if credentials is None and (path := given.get("key_file")):
            credentials = credentials_in(Path(path))
        return cls(hosts.replace(",", ";"), unquote(namespace) or None, credentials, _tls(shown, given))


def _tls(shown: str, given: Mapping[str, str]) -> TlsOptions | None:
    wanted = _YES.get(given.get("tls", "true" if any(name != "key_file" for name in given) else "false"))
    if wanted is None:
        raise ConfigError("url", f"{shown}?tls={given['tls']}", "tls=true or tls=false")
    if not wanted:
        return None
    paths = {name: Path(given[name]) for name in URL_OPTIONS if name.startswith("tls_") and given.get(name)}
    return TlsOptions(
        certificate_path=paths.get("tls_certificate"),
        key_path=paths.get("tls_key"),
        trust_path=paths.get("tls_trust"),
        verify="tls_trust" in paths,
    )


def credentials_in(path: Path) -> Credentials:
    """The keys of a file: `AccessKey=` and `SecretKey=`, one on a line."""
    try:
        return credentials_from_text(path.read_text())
    except OSError as problem:
        raise ConfigError("key_file", path, f"a readable file ({problem.strerror})") from problem


def from_environment(environ: Mapping[str, str]) -> ConnectionUrl:
    return ConnectionUrl.parse(environ.get(URL_VARIABLE) or environ.get(ADDRESS_VARIABLE) or "")


def keys_from_environment(environ: Mapping[str, str]) -> Credentials | None:
    access_key, secret_key = environ.get(ACCESS_KEY_VARIABLE), environ.get(SECRET_KEY_VARIABLE)
    if access_key and secret_key:
        return Credentials(access_key, secret_key)
    path = environ.get(KEY_FILE_VARIABLE)
    return credentials_in(Path(path)) if path else None


def tls_from_environment(environ: Mapping[str, str]) -> TlsOptions | None:
    return TlsOptions.chosen(False, environ.get(TRUST_VARIABLE) or None)
