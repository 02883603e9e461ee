"""The YAML files of access control 1.0: `plain_acl.yml`, and every file in the directory `acl` next to it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyromq.config.durable_file import DurableFile
from pyromq.errors import ConfigError
from pyromq.protocol.body import DataVersion
from pyromq.remoting.access.users_file import Stamp, stamp_of
from pyromq.security.accounts import AccountRules, read_accounts


class AccountFiles:
    """Blocking."""

    def __init__(self, main: Path, now_ms: Callable[[], int]) -> None:
        self.main = main
        self._now_ms = now_ms

    def __repr__(self) -> str:
        return f"<AccountFiles {self.main}>"

    def paths(self) -> list[Path]:
        """java: the files of the directory come first, and the first of several equal accounts wins"""
        directory = self.main.parent / "acl"
        found = sorted(path for path in directory.rglob("*") if path.suffix in (".yml", ".yaml"))
        return [*found, self.main] if self.main.exists() else found

    def stamp(self) -> Stamp:
        return stamp_of(*self.paths())

    def load(self) -> AccountRules:
        """Raises ConfigError that names the file and the line."""
        paths = self.paths()
        if not paths:
            raise ConfigError("aclFile", self.main, "an existing file, because aclEnable is true")
        return read_accounts((path.name, self._read(path)) for path in paths)

    def versions(self) -> dict[str, DataVersion]:
        """The data version in each file."""
        return {str(path): _version(self._read(path)) for path in self.paths()}

    # Changes by requests; each returns whether there was something to change

    def put_account(self, values: dict[str, Any]) -> bool:
        """Change the account of this access key where it is, or add it to the main file."""
        for path in self.paths():
            content = self._read(path) or {}
            for account in content.get("accounts") or []:
                if account.get("accessKey") == values["accessKey"]:
                    account.update(values)
                    return self._write(path, content)
        content = (self._read(self.main) if self.main.exists() else None) or {}
        content["accounts"] = [*(content.get("accounts") or []), values]
        return self._write(self.main, content)

    def delete_account(self, access_key: str) -> bool:
        for path in self.paths():
            content = self._read(path) or {}
            accounts = content.get("accounts") or []
            kept = [account for account in accounts if account.get("accessKey") != access_key]
            if len(kept) < len(accounts):
                content["accounts"] = kept
                return self._write(path, content)
        return False

    def put_trusted_addresses(self, addresses: list[str], file: str | None) -> bool:
        path = Path(file) if file else self.main
        if path != self.main and path not in self.paths():
            return False
        content = (self._read(path) if path.exists() else None) or {}
        content["globalWhiteRemoteAddresses"] = addresses
        return self._write(path, content)

    def _read(self, path: Path) -> Any:
        yaml = _yaml()
        try:
            return yaml.safe_load(path.read_bytes())
        except (OSError, yaml.YAMLError, ValueError, RecursionError) as problem:
            # The problem may quote the line, which may contain a secret.
            mark = getattr(problem, "problem_mark", None)
            where = f"line {mark.line + 1}" if mark is not None else type(problem).__name__
            raise ConfigError(str(path), where, "a YAML file that can be read") from None

    def _write(self, path: Path, content: dict[str, Any]) -> bool:
        read_accounts([(path.name, content)])  # never leave a file that cannot be read
        version = _version(content).next(self._now_ms())
        content["dataVersion"] = [{"counter": version.counter, "timestamp": version.timestamp}]
        DurableFile(path).save(_yaml().safe_dump(content, sort_keys=False, allow_unicode=True).encode())
        path.chmod(0o600)
        return True


def _version(content: Any) -> DataVersion:
    versions = content.get("dataVersion") if isinstance(content, dict) else None
    first = versions[0] if isinstance(versions, list) and versions else {}
    return DataVersion(counter=int(first.get("counter") or 0), timestamp=int(first.get("timestamp") or 0))


def _yaml() -> Any:
    try:
        import yaml
    except ImportError:
        raise ConfigError("aclEnable", "true", "PyYAML to be installed: pip install 'pyromq[acl]'") from None
    return yaml
