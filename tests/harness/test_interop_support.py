"""How the interop tests come to run, and how it is said that they cannot; no Java or network is needed."""

import contextlib
import os
import re
import select
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import apache, apache_releases
from tests.support.apache_releases import APACHE_5, UNAVAILABLE
from tools import interop_runs
from tools.interop_runs import Share, run_all, shares_of

JAVA_17 = "echo 'openjdk version \"17.0.1\" 2021-10-19' >&2"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory whose programs are the only ones; nothing has been fetched."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return directory


def install(programs: Path, name: str, script: str) -> None:
    program = programs / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("installed", "reason"),
    [
        ({}, "java is not installed"),
        ({"java": "echo 'openjdk version \"11.0.2\" 2019' >&2"}, "needs Java 17 here, java says: openjdk"),
        ({"java": JAVA_17}, "javac is not installed"),
        ({"java": JAVA_17, "javac": "exit 0"}, "mvn is not installed"),
        (
            {
                "java": JAVA_17,
                "javac": "exit 0",
                "mvn": "echo '[ERROR] Some problems'; echo '[ERROR] Could not transfer it'; exit 1",
            },
            "cannot be had: Could not transfer it",
        ),
        (
            # The registry answers the probe, and breaks down in the middle of the download.
            {
                "java": JAVA_17,
                "javac": "exit 0",
                "mvn": 'case "$*" in *validate*) exit 0;; esac; echo "[ERROR] Connection reset"; exit 1',
            },
            "could not fetch Apache RocketMQ 4.9.7 (servers) with Maven: Connection reset",
        ),
    ],
)
def test_what_keeps_apaches_releases_away_is_said(
    programs: Path, capfd: pytest.CaptureFixture[str], installed: dict[str, str], reason: str
) -> None:
    for name, script in installed.items():
        install(programs, name, script)
    assert apache_releases.main([]) == UNAVAILABLE
    assert reason in capfd.readouterr().err
    assert not list(programs.parent.glob("cache/pyromq/apache/*"))


def test_maven_is_not_waited_for_without_end(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(programs, "mvn", "exec /bin/sleep 600")
    monkeypatch.setattr(apache_releases, "FETCH_TIMEOUT_S", 0.1)
    with pytest.raises(apache_releases.PeerUnavailable, match="not done after 0 s"):
        apache_releases.fetch(APACHE_5.servers, "servers")


def test_what_was_fetched_is_kept(programs: Path) -> None:
    install(
        programs,
        "mvn",
        'for word; do case "$word" in -DoutputDirectory=*) echo jar > "${word#*=}/a.jar";; esac; done',
    )
    jars = apache_releases.fetch(APACHE_5.servers, "servers")
    assert [jar.name for jar in jars.iterdir()] == ["a.jar"]
    install(programs, "mvn", "exit 1")
    assert apache_releases.fetch(APACHE_5.servers, "servers") == jars


def test_a_peer_that_is_started_again_is_waited_for_again(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(programs, "java", "echo ready; exec /bin/cat")
    peer = apache.JavaProcess("", "Peer", [], "ready")
    try:
        peer.start()
        peer.kill()
        install(programs, "java", "exec /bin/sleep 600")
        monkeypatch.setattr(apache, "START_TIMEOUT_S", 0.1)
        with pytest.raises(apache_releases.PeerUnavailable, match="Peer did not start"):
            peer.start()
        assert not peer.running
    finally:
        peer.__exit__()


def test_a_peer_that_hangs_up_has_not_started(programs: Path) -> None:
    install(programs, "java", "exec >&- 2>&-; exec /bin/sleep 600")
    peer = apache.JavaProcess("", "Peer", [], "ready")
    try:
        with pytest.raises(apache_releases.PeerUnavailable, match="Peer did not start"):
            peer.start()
        assert not peer.running
    finally:
        peer.__exit__()


def test_tests_that_share_servers_stay_together_and_the_largest_share_begins() -> None:
    tests = [
        "tests/interop/test_a.py::test_one[4.9.8-JSON]",
        "tests/interop/test_a.py::test_one[4.9.8-ROCKETMQ]",
        "tests/interop/test_a.py::test_two[4.9.8-JSON-more]",
        "tests/interop/test_b.py::test_one[5.3.3]",
        "tests/interop/test_b.py::test_two[topicList -n-5.3.3]",
        "tests/interop/test_b.py::test_three[5.3.3-binary]",
        "tests/interop/test_c.py::test_plain",
    ]
    found = shares_of(tests)
    assert [(share.name, len(share.tests)) for share in found] == [
        ("test_b 5.3.3", 3),
        ("test_a 4.9.8 JSON", 2),
        ("test_a 4.9.8 ROCKETMQ", 1),
        ("test_c", 1),
    ]
    assert sorted(test for share in found for test in share.tests) == sorted(tests)


def test_short_shares_run_in_one_process_if_they_use_the_same_client() -> None:
    tests = [
        *(f"tests/interop/test_long.py::test_{number}[5.3.3]" for number in range(60)),
        *(f"tests/interop/test_half.py::test_{number}[5.3.3-JSON]" for number in range(30)),
        "tests/interop/test_a.py::test_one[5.3.3]",
        "tests/interop/test_b.py::test_one[5.3.3]",
        "tests/interop/test_a.py::test_one[5.3.3-ROCKETMQ]",
        "tests/interop/test_a.py::test_one[4.9.8]",
        *(f"tests/interop/test_other_half.py::test_{number}[5.3.3]" for number in range(28)),
    ]
    found = shares_of(tests)
    assert [share.name for share in found] == [
        "test_long 5.3.3",
        "test_other_half 5.3.3 + test_a 5.3.3 + test_b 5.3.3",
        "test_half 5.3.3 JSON",
        "test_a 5.3.3 ROCKETMQ",
        "test_a 4.9.8",
    ]
    assert sorted(test for share in found for test in share.tests) == sorted(tests)


def test_it_is_said_how_much_a_share_has_computed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs(monkeypatch, "print('== 1 passed in 0.10s ==')")
    assert run_all([Share("a", ("x",))], at_once=1, minutes=1)
    assert re.search(r"^ok     a: 1 passed in 0.10s \(.* \d+ s of CPU\)$", capsys.readouterr().out, re.M)


def runs(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(interop_runs, "PYTEST", (sys.executable, "-c", program))


def test_the_counts_of_all_shares_are_added_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs(monkeypatch, "print('== 3 passed, 1 skipped in 0.10s ==')")
    assert run_all([Share("a", ("x",)), Share("b", ("y",)), Share("c", ("z",))], at_once=2, minutes=1)
    assert "9 passed, 3 skipped" in capsys.readouterr().out


def test_one_failure_fails_all_and_its_output_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs(
        monkeypatch,
        "print('what went wrong'); print('== 1 failed, 2 errors in 0.10s =='); raise SystemExit(1)",
    )
    assert not run_all([Share("a", ("x",))], at_once=2, minutes=1)
    said = capsys.readouterr().out
    assert "what went wrong" in said
    assert "1 failed, 2 error\n" in said


def attempts(tmp_path: Path, failing: str) -> str:
    """A program that fails the first time it runs, and notes which tests it got each time."""
    return (
        "import pathlib, sys\n"
        f"notes = pathlib.Path({str(tmp_path / 'notes')!r})\n"
        "said = notes.read_text() if notes.exists() else ''\n"
        "notes.write_text(said + pathlib.Path(sys.argv[-1][1:]).read_text().replace('\\n', ' ') + '/')\n"
        f"if not said: print({failing!r}); print('== 1 failed in 0.10s =='); raise SystemExit(1)\n"
        "print('== 1 passed in 0.10s ==')"
    )


def test_a_test_that_failed_is_tried_once_more_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs(monkeypatch, attempts(tmp_path, "FAILED t.py::test_b - AssertionError"))
    assert run_all([Share("a", ("t.py::test_a", "t.py::test_b", "t.py::test_bc"))], at_once=2, minutes=1)
    assert (tmp_path / "notes").read_text() == "t.py::test_a t.py::test_b t.py::test_bc /t.py::test_b /"
    said = capsys.readouterr().out
    assert "FAILED a:" in said
    assert "ok     a, again:" in said


def test_servers_that_did_not_start_are_started_once_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tests = tuple(f"t.py::test_{number}" for number in range(6))
    told = "ERROR    pyromq:a.py:1 a log\n" + "\n".join(f"ERROR {test} - not started" for test in tests[:5])
    runs(monkeypatch, attempts(tmp_path, told))
    assert run_all([Share("a", tests)], at_once=2, minutes=1)
    assert (tmp_path / "notes").read_text() == f"{' '.join(tests)} /" * 2


def test_many_failures_are_believed_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tests = tuple(f"t.py::test_{number}" for number in range(5))
    runs(monkeypatch, attempts(tmp_path, "\n".join(f"FAILED {test}" for test in tests)))
    assert not run_all([Share("a", tests)], at_once=2, minutes=1)
    assert (tmp_path / "notes").read_text().count("/") == 1


def test_when_the_time_is_over_everything_that_was_started_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = tmp_path / "pids"
    runs(
        monkeypatch,
        "import os, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        f"open({str(told)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}} ')\n"
        "time.sleep(600)",
    )

    def now_s() -> float:
        """Time stands still until the names of both processes are told."""
        return 1e9 if told.exists() and told.read_text().endswith(" ") else 0.0

    assert not run_all([Share("a", ("x",)), Share("b", ("y",))], at_once=1, minutes=1, now_s=now_s)
    said = capsys.readouterr().out
    assert "a: not done when 1 minutes were over" in said
    assert "b: 1 minutes were over before it could start" in said
    for pid in map(int, told.read_text().split()):
        wait_until_gone(pid)


def wait_until_gone(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        watching = os.pidfd_open(pid)
        try:
            assert select.select([watching], [], [], 60)[0], f"{pid} lives"
        finally:
            os.close(watching)


FAILS_ONCE = """
def test_it(request):
    tried = request.config.rootpath / "tried"
    if not tried.exists():
        tried.touch()
        raise AssertionError
"""


@pytest.mark.parametrize(
    ("test", "exit_code", "verdict"),
    [
        ("def test_it(): pass", 0, "all is well"),
        ("def test_it(): raise AssertionError", 1, "FAILED"),
        (FAILS_ONCE, 0, "all is well"),
        ("", 1, "FAILED"),
    ],
    ids=["passing", "failing", "failing once", "none"],
)
def test_the_exit_code_says_what_the_last_line_says(
    tmp_path: Path, test: str, exit_code: int, verdict: str
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = interop\n")
    (tmp_path / "test_peer.py").write_text(f"import pytest\npytestmark = pytest.mark.interop\n{test}\n")
    root = Path(interop_runs.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "tools.interop_runs", "test_peer.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(root), "FORCE_COLOR": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (exit_code, "")
    assert verdict in done.stdout.splitlines()[-1]
