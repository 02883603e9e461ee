"""pyromq console and standalone --console as an operator meets them."""

import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pyromq.apps.pyromq import COMMANDS

PASSWORD = "correct horse battery"


def run(*words: str, **options: str) -> Result:
    return CliRunner().invoke(COMMANDS, ["console", *words], prog_name="pyromq", **options)  # type: ignore[arg-type]


def test_users_are_added_listed_and_removed(tmp_path: Path) -> None:
    home = ("-o", f"home={tmp_path}")
    added = run(*home, "user", "add", "ada", "--role", "operator", input=f"{PASSWORD}\n{PASSWORD}\n")
    assert added.exit_code == 0, added.output
    assert PASSWORD not in added.output
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    assert run(*home, "user", "add", "bob", "--password-file", str(tmp_path / "password")).exit_code == 0
    assert run(*home, "user", "list").stdout == "ada\toperator\nbob\tviewer\n"
    assert run(*home, "user", "remove", "bob").exit_code == 0
    assert run(*home, "user", "list").stdout == "ada\toperator\n"


def test_the_users_of_a_console_are_found_by_its_file(tmp_path: Path) -> None:
    file = tmp_path / "console.conf"
    file.write_text(f"home={tmp_path / 'elsewhere'}\n")
    added = run("user", "add", "ada", "-c", str(file), input=f"{PASSWORD}\n{PASSWORD}\n")
    assert added.exit_code == 0, added.output
    assert run("user", "list", "-c", str(file)).stdout == "ada\tviewer\n"
    assert run("-c", str(file), "user", "list").stdout == "ada\tviewer\n"


def test_a_short_password_is_refused_without_being_shown(tmp_path: Path) -> None:
    done = run("-o", f"home={tmp_path}", "user", "add", "ada", input="geheim\ngeheim\n")
    assert done.exit_code == 1
    assert "at least 10 characters" in done.output
    assert "geheim" not in done.output


def test_it_does_not_listen_beyond_this_machine_without_users(tmp_path: Path) -> None:
    words = ("-n", "127.0.0.1:9", "--host", "0.0.0.0", "-o", f"home={tmp_path}")
    done = subprocess.run(
        [sys.executable, "-m", "pyromq", "console", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "there are no users: `pyromq console user add NAME` adds one" in done.stderr


def test_it_needs_a_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert "no name server given" in run().output


def test_settings_are_printed_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run("-n", "a:1", "-p", "-o", "accessKey=ada", "-o", "secretKey=geheim")
    assert "namesrvAddr=a:1\n" in done.stdout
    assert "secretKey=******\n" in done.stdout


def test_keys_and_trust_come_from_the_variables_of_all_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, trust = tmp_path / "keys", tmp_path / "ca.pem"
    keys.write_text("AccessKey=ada\nSecretKey=geheim\n")
    trust.write_text("")
    monkeypatch.setenv("PYROMQ_KEY_FILE", str(keys))
    monkeypatch.setenv("PYROMQ_TLS_TRUST", str(trust))
    shown = run("-n", "a:1", "-p").stdout
    assert f"keyFile={keys}\n" in shown
    assert f"clusterTrustPath={trust}\n" in shown


@pytest.mark.parametrize("more", [(), ("--replicas", "2")], ids=["one broker", "replicas"])
def test_a_standalone_cluster_has_its_console_beside_it(tmp_path: Path, more: tuple[str, ...]) -> None:
    words = ("standalone", "--namesrv-port", "0", "--broker-port", "0", "--grpc-port", "-1", "--console", "0")
    program = subprocess.Popen(
        [sys.executable, "-m", "pyromq", *words, *more, "--store", str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert program.stdout is not None
        lines = [program.stdout.readline()]
        while lines[-1] and not lines[-1].startswith("Log in"):
            lines.append(program.stdout.readline())
        # A new master may be announced before.
        assert any(line.startswith("PyroMQ is ready") for line in lines), lines
        found = re.fullmatch(r"The console is at (http://127\.0\.0\.1:\d+/)\n", lines[-2])
        assert found is not None, lines
        assert re.fullmatch(r"Log in as admin with \S{20,} \(it is shown only now\)\n", lines[-1])
        with urllib.request.urlopen(f"{found[1]}health", timeout=30) as answer:
            assert answer.read() == b'{"status":"UP"}'
    finally:
        program.send_signal(signal.SIGTERM)
        assert program.wait(60) == 0
        if program.stdout is not None:
            program.stdout.close()
