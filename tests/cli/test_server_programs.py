"""What every server program does alike: real processes, their output, their exit codes."""

import re
import socket
from pathlib import Path

import pytest
from tests.support.server_programs import BROKER, CONSOLE, CONTROLLER, NAME_SERVER, PROXY, Program

QUIET = ("--log-dir", "", "-o", "logLevel=ERROR")
LOOPBACK = ("-o", "bindAddress=127.0.0.1")
OPTIONS = ("-c,", "-p,", "-h,", "-o,", "--port", "--log-dir")

each_program = pytest.mark.parametrize(
    ("program", "name"),
    [(BROKER, "mqbroker"), (NAME_SERVER, "mqnamesrv"), (CONTROLLER, "mqcontroller")],
    ids=["mqbroker", "mqnamesrv", "mqcontroller"],
)


@pytest.mark.parametrize(
    ("program", "more"),
    [(BROKER, ("-n,", "-m,", "--store")), (NAME_SERVER, ("-n,",)), (CONTROLLER, ())],
    ids=["mqbroker", "mqnamesrv", "mqcontroller"],
)
def test_help_names_every_option(program: Program, more: tuple[str, ...], tmp_path: Path) -> None:
    done = program.run(tmp_path, "-h")
    assert done.returncode == 0
    for option in (*OPTIONS, *more):
        assert option in done.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["-o", "listenPort=many"], "listenPort=many: expected a whole number between {ports}"),
        (["--port", "70000"], "listenPort=70000: expected a whole number between {ports}"),
        (["-c", "absent.conf"], "configFile=absent.conf: expected a readable properties file"),
    ],
)
@each_program
def test_a_bad_setting_is_one_line_and_a_failure(
    program: Program, name: str, arguments: list[str], complaint: str, tmp_path: Path
) -> None:
    done = program.run(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    ports = "3 and 65535, or 0" if program is BROKER else "0 and 65535"  # a broker has a second one below
    assert line.startswith(f"{name}: {complaint.format(ports=ports)}")


@each_program
def test_an_override_must_be_an_assignment(program: Program, name: str, tmp_path: Path) -> None:
    done = program.run(tmp_path, "-o", "listenPort")
    assert done.returncode == 2
    assert done.stderr.startswith(f"Usage: {name}")
    assert "'listenPort': expected KEY=VALUE" in done.stderr


@each_program
def test_without_a_log_directory_only_the_console_is_written(
    program: Program, name: str, tmp_path: Path
) -> None:
    with program.running(tmp_path, "--port", "0", "--log-dir", "") as server:
        assert server.stop() == 0
    assert not (tmp_path / "logs").exists(), name
    assert "starting" in server.stderr()
    assert "boot success" not in server.stderr(), "stdout has the line already"


NOWHERE = ("-n", "127.0.0.1:1")


@pytest.mark.parametrize(
    ("program", "more", "file"),
    [
        (BROKER, ("--port", "0", "--store", "store"), "broker.log"),
        (NAME_SERVER, ("--port", "0"), "namesrv.log"),
        (CONTROLLER, ("--port", "0"), "controller.log"),
        (PROXY, ("--port", "0", *NOWHERE), "proxy.log"),
        (CONSOLE, ("--port", "0", "-o", "home=home", *NOWHERE), "console.log"),
    ],
    ids=["mqbroker", "mqnamesrv", "mqcontroller", "mqproxy", "console"],
)
def test_the_log_file_of_a_server_tells_its_start_and_its_end(
    program: Program, more: tuple[str, ...], file: str, tmp_path: Path
) -> None:
    more = (*more, *LOOPBACK, "-o", "logDir=logs", "-o", "noSuchKey=1")
    with program.running(tmp_path, *more) as server:
        assert server.stop() == 0
        passwords = re.findall(r"Log in as admin with (\S+)", server.more_output())
    assert len(passwords) == (program is CONSOLE)
    log = (tmp_path / "logs" / file).read_text()
    for words in ("unknown setting noSuchKey", "starting ", server.boot[0], "stopping signal=SIGTERM"):
        assert words in log
    assert log.endswith("stopped\n")
    assert not any(password in log for password in passwords)


# A broker has a second port, two below the first.
@pytest.mark.parametrize(
    ("program", "name", "distance"),
    [(BROKER, "mqbroker", 0), (BROKER, "mqbroker", 2), (NAME_SERVER, "mqnamesrv", 0)],
    ids=["mqbroker", "mqbroker's fast port", "mqnamesrv"],
)
def test_a_port_in_use_is_one_line_and_a_failure(
    program: Program, name: str, distance: int, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = program.run(tmp_path, *LOOPBACK, "--port", str(port + distance), *QUIET)
    assert done.returncode == 1
    assert done.stderr == (
        f"{name}: could not listen on 127.0.0.1:{port}: Address already in use; choose another port\n"
    )


@each_program
def test_unreadable_tls_files_are_one_line_and_a_failure(program: Program, name: str, tmp_path: Path) -> None:
    files = {"tls.server.certPath": tmp_path / "absent.pem", "tls.server.keyPath": tmp_path / "absent.key"}
    settings = [word for key, path in files.items() for word in ("-o", f"{key}={path}")]
    done = program.run(tmp_path, *LOOPBACK, "--port", "0", *QUIET, *settings)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{name}: ")
    assert "absent" in line
