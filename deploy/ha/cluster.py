"""High availability, TLS and access control on one machine: two name servers, a controller, three brokers.

    python deploy/ha/cluster.py DIRECTORY [--port 19700]

The directory gets an authority, a certificate and a file for each server, passwords, and the keys of two
users. `admin.properties` may do everything; `shop.properties` may send to the topic `orders` and read it as
the group `billing`. What is there already is used again. Ctrl+C stops all servers.
"""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from secrets import token_urlsafe
from string import Template

HERE = Path(__file__).parent
PROGRAMS = Path(sys.executable).parent
CLUSTER, TOPIC, GROUP = "ha", "orders", "billing"
PLACES = {"namesrv-0": 0, "namesrv-1": 1, "controller-0": 2, "broker-0": 10, "broker-1": 20, "broker-2": 30}
"""By server: its distance from the first port. A broker has its HA port one, and /ready five above it."""
SPARE = "broker-3"
"""A second group, `broker-b`, by which the cluster can grow; the example starts without it."""
_START_S = 120


class Cluster:
    def __init__(self, directory: Path, first_port: int) -> None:
        self.directory, self._port = directory, first_port
        self.authority = directory / "ca.pem"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def address(self, name: str) -> str:
        return f"127.0.0.1:{self.port(name)}"

    def port(self, name: str) -> int:
        return self._port + (40 if name == SPARE else PLACES[name])

    @property
    def name_servers(self) -> str:
        return ";".join(self.address(name) for name in PLACES if name.startswith("namesrv"))

    @property
    def brokers(self) -> list[str]:
        return [name for name in PLACES if name.startswith("broker")]

    def keys(self, user: str) -> Path:
        return self.directory / f"{user}.properties"

    def options(self, user: str = "admin") -> list[str]:
        """How a command reaches the cluster."""
        options = ["-n", self.name_servers, "--key-file", self.keys(user), "--tls-trust", self.authority]
        return [str(each) for each in options]

    # Files

    def make(self) -> None:
        """Whatever is missing."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        passwords = self.directory / "passwords.json"
        if not passwords.exists():
            users = ("admin", "servers", "shop")
            self.write(passwords, json.dumps({user: token_urlsafe(24) for user in users}))
        for user, password in self.passwords().items():
            self.write(self.keys(user), f"AccessKey={user}\nSecretKey={password}\n")
        if not self.authority.exists():
            self.make_authority()
        for name in (*PLACES, SPARE):
            (self.directory / name).mkdir(exist_ok=True)
            if not (self.directory / name / "server.pem").exists():
                self.issue(name)
            self.configure(name)

    def passwords(self) -> dict[str, str]:
        return dict(json.loads((self.directory / "passwords.json").read_text()))

    def change_password(self, user: str, password: str) -> None:
        """In the files; the servers read theirs when they start."""
        self.write(self.directory / "passwords.json", json.dumps(self.passwords() | {user: password}))
        self.make()

    def configure(self, name: str) -> None:
        """Write the file of a server."""
        port = self.port(name)
        values = {
            "dir": self.directory / name,
            "ca": self.authority,
            "port": port,
            "metrics": port + 5,
            "name_servers": self.name_servers,
            "controller": self.address("controller-0"),
            "group": "broker-b" if name == SPARE else "broker-a",
            "in_sync": 1 if name == SPARE else 2,
            **self.passwords(),
        }
        kind = name.partition("-")[0]
        text = "\n".join((HERE / f"{part}.conf").read_text() for part in (kind, "security"))
        self.write(self.directory / name / "server.conf", Template(text).substitute(values))

    def make_authority(self) -> None:
        """A new one, first in `ca.pem`. The one before is trusted until it is retired."""
        old = self.authority.read_text() if self.authority.exists() else ""
        subject = ["-subj", f"/CN=authority {token_urlsafe(6)}", "-days", "3650"]
        self._openssl("req", "-x509", *_NEW_KEY, *subject, "-keyout", "ca.key", "-out", "new-ca.pem")
        self.write(self.authority, (self.directory / "new-ca.pem").read_text() + old)

    def retire_old_authority(self) -> None:
        """Once every server has a certificate of the new one."""
        self.write(self.authority, (self.directory / "new-ca.pem").read_text())

    def issue(self, name: str) -> None:
        """A certificate for 397 days. The server reads it when the next connection arrives."""
        place = self.directory / name
        names = [*("-subj", f"/CN={name}"), *("-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost")]
        self._openssl("req", *_NEW_KEY, *names, "-keyout", f"{place}/new.key", "-out", f"{place}/new.csr")
        signing = ["-CA", "ca.pem", "-CAkey", "ca.key", "-copy_extensions", "copy", "-days", "397"]
        self._openssl("x509", "-req", *signing, "-in", f"{place}/new.csr", "-out", f"{place}/new.pem")
        for kind in ("key", "pem"):
            (place / f"new.{kind}").replace(place / f"server.{kind}")

    def _openssl(self, *words: str) -> None:
        command = ["openssl", *words]
        done = subprocess.run(command, cwd=self.directory, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")

    def write(self, path: Path, text: str) -> None:
        """So that others on this machine cannot read it."""
        fresh = path.with_name(f"{path.name}.new")
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
        fresh.replace(path)

    # Processes

    def start(self, name: str) -> None:
        place = self.directory / name
        command = [PROGRAMS / f"mq{name.partition('-')[0]}", "-c", place / "server.conf"]
        with (place / "output").open("ab") as output:
            self.processes[name] = subprocess.Popen(command, stdout=output, stderr=output)

    def stop(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        process = self.processes.pop(name)
        process.send_signal(how)
        process.wait(_START_S)

    def stop_all(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for name in list(self.processes):
            self.processes.pop(name).wait(_START_S)

    def start_all(self) -> None:
        for name in PLACES:
            self.start(name)
        for name in self.brokers:
            self.wait_ready(name)

    def problem(self, name: str) -> str:
        """Why a broker is not ready; empty if it is."""
        port = self.port(name) + 5
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=10):
                return ""
        except urllib.error.HTTPError as refusal:
            return refusal.read().decode()
        except OSError as problem:
            return str(problem)

    def wait_ready(self, name: str) -> None:
        deadline = time.monotonic() + _START_S
        while why := self.problem(name):
            if self.processes[name].poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{name} is not ready: {why}; see {self.directory / name / 'output'}")
            time.sleep(0.2)

    def line(self, program: str, *words: str, user: str = "admin") -> str:
        """A command with the keys of a user."""
        return shlex.join([str(PROGRAMS / program), *words, *self.options(user)])

    def run(self, program: str, *words: str, user: str = "admin", given: str = "") -> str:
        """Its output. It ends this program if it fails."""
        line = self.line(program, *words, user=user)
        done = subprocess.run(shlex.split(line), input=given, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{line}: {done.stdout}{done.stderr}")
        return done.stdout

    def grant(self) -> None:
        """A topic, a group, and a user that may use both, the first time."""
        if "shop" in self.run("mqadmin", "listUser", "-c", CLUSTER):
            return
        self.run("mqadmin", "updateTopic", "-c", CLUSTER, "-t", TOPIC, "-r", "4", "-w", "4")
        self.run("mqadmin", "updateSubGroup", "-c", CLUSTER, "-g", GROUP)
        password = self.passwords()["shop"]
        self.run("mqadmin", "createUser", "-c", CLUSTER, "-u", "shop", given=f"{password}\n")
        for resource, actions in ((f"Topic:{TOPIC}", "Pub,Sub"), (f"Group:{GROUP}", "Sub")):
            rights = ["-s", "User:shop", "-r", resource, "-a", actions, "-d", "Allow"]
            self.run("mqadmin", "createAcl", "-c", CLUSTER, *rights)


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--port", type=int, default=19700, help="the first of 50 ports")
    chosen = parser.parse_args()
    cluster = Cluster(chosen.directory.absolute(), chosen.port)
    cluster.make()
    # Whoever stops this program stops the servers.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        cluster.start_all()
        cluster.grant()
        lines = (
            f"ready: {cluster.name_servers}; try it in another terminal:",
            f"  echo hello | {cluster.line('pyromq', 'produce', TOPIC, user='shop')}",
            f"  {cluster.line('pyromq', 'consume', TOPIC, '-g', GROUP, user='shop')}",
            f"  {cluster.line('mqadmin', 'clusterList')}",
        )
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()
        signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        cluster.stop_all()


if __name__ == "__main__":
    main()
