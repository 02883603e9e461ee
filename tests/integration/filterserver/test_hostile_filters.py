"""Whatever a filter does, it fails alone: the filter server lives, and so do other filters."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import wasmtime
from tests.support.filter_server import confined, module_filter
from tests.support.loop import turn_until

from pyromq.filterserver.exchange import ERROR, HEAD, LENGTH, FilterSource
from pyromq.filterserver.filter_process import FilterFailed, FilterLimits, FilterProcess
from pyromq.protocol.record import StoredMessage, encode_record

pytestmark = confined

LIMITS = FilterLimits(cpu_s=0.2, wait_s=30.0, memory_bytes=64 * 1024 * 1024)
RECORD = encode_record(StoredMessage(topic="Orders", body=b'{"amount": 150}', queue_id=1, queue_offset=7))


def filter_source(code: str | bytes) -> FilterSource:
    return FilterSource("shop", "Orders", "chosen", code.encode() if isinstance(code, str) else code)


async def _ask(process: FilterProcess, source: FilterSource) -> None:
    await process.load(source)
    await process.match(1, [RECORD])


async def failure(code: str | bytes, limits: FilterLimits = LIMITS) -> FilterFailed:
    """How a filter fails when it is loaded, or asked about one message."""
    source = filter_source(code)
    process = await FilterProcess.start(limits, is_module=source.is_module)
    try:
        with pytest.raises(FilterFailed) as failed:
            await _ask(process, source)
        assert process.is_over == failed.value.is_over
    finally:
        await process.end()
    return failed.value


def matching(*lines: str) -> str:
    return "\n ".join(("def match(message, context):", *lines))


# The filter, and the words that tell of it.
REFUSED = {
    "a fork": (("import os", "os.fork()"), "Operation not permitted"),
    "a program": (("import os", "os.execv('/bin/true', ['true'])"), "Operation not permitted"),
    "a shell": (("import os", "assert os.system('true') == 0"), "AssertionError"),
    "a thread": (("import _thread", "_thread.start_new_thread(print, ())"), "can't start new thread"),
    "reading a file": (("open('/etc/passwd')",), "Operation not permitted"),
    "writing a file": (("open('/tmp/x', 'w')",), "Operation not permitted"),
    "looking around": (("import os", "os.listdir('/')"), "Operation not permitted"),
    "removing a file": (("import os", "os.unlink('/tmp/x')"), "Operation not permitted"),
    "the module of sockets": (("import socket",), "No module named 'socket'.*may import"),
    "killing the server": (("import os", "os.kill(os.getppid(), 9)"), "Operation not permitted"),
    "more limits": (
        ("import resource as r", "r.setrlimit(r.RLIMIT_NOFILE, (64, 64))"),
        "Operation not permitted|not allowed",
    ),
    "sleeping": (("import time", "time.sleep(1000)"), "Operation not permitted"),
    "an exception": (("return 1 / 0",), "line 2: ZeroDivisionError: division by zero"),
    "an exception that cannot be shown": (
        ("class Bad(Exception):", "  def __str__(self): return self.what", "raise Bad"),
        "line 4: Bad",
    ),
    "leaving": (("raise SystemExit(0)",), "SystemExit"),
    "deep recursion": (("return match(message, context)",), "RecursionError"),
    "no answer": (("return None",), "returned NoneType, not True or False"),
}
FATAL = {
    "an endless loop": (("while True: pass",), "more than 200 ms of CPU time"),
    "a long computation in C": (("return 9 ** 10 ** 9 > 1",), "more than 200 ms of CPU time"),
    "much memory": (("x = [bytearray(1 << 20)]", "while True: x += x"), "more memory than filters may"),
    "one large text": (("'a' * (1 << 31)",), "more memory than filters may"),
    "leaving at once": (("import os", "os._exit(3)"), "ended with status 3"),
    "a crash": (("import ctypes", "ctypes.string_at(0)"), "ended by signal 11"),
    "a forged answer": (("import os", "os.write(1, b'\\0\\0\\0\\5\\0\\0\\0\\2V')"), "own answer"),
    "garbage as an answer": (("import os", "os.write(1, bytes(range(256)))"), "own answer"),
    "a flood of garbage": (("import os", "os.write(1, bytes(1 << 22))"), "own answer"),
}


async def test_what_the_kernel_or_python_refuses_fails_the_filter_and_not_its_process() -> None:
    process = await FilterProcess.start(LIMITS)
    try:
        for attack, (lines, words) in REFUSED.items():
            await process.load(filter_source(matching(*lines)))
            with pytest.raises(FilterFailed) as failed:
                await process.match(1, [RECORD])
            assert re.search(words, str(failed.value)), (attack, failed.value)
            assert not failed.value.is_over, attack
        await process.load(filter_source(matching("return True")))
        assert await process.match(1, [RECORD]) == [True]
    finally:
        await process.end()


@pytest.mark.parametrize("attack", FATAL)
async def test_a_filter_that_takes_too_much_or_breaks_its_process_is_ended(attack: str) -> None:
    lines, words = FATAL[attack]
    failed = await failure(matching(*lines))
    assert re.search(words, str(failed)), str(failed)
    assert failed.is_over


# The source, and the words that say why it is no filter.
NO_FILTERS = {
    "nothing": ("", "no function match"),
    "Java": ("public class Large implements MessageFilter {}", "not Python: line 1"),
    "a NUL": ("\0", "not Python"),
    "no function": ("match = 1", "no function match"),
    "three arguments": ("def match(a, b, c): return True", "no function match"),
    "an endless loop": ("while True: pass", "more than 200 ms of CPU time"),
    "a source too deep to compile": (f"x = {'-' * 60_000}1", "more memory|Recursion|too many"),
}


@pytest.mark.parametrize("kind", NO_FILTERS)
async def test_a_source_that_is_no_filter_is_told_so(kind: str) -> None:
    source, words = NO_FILTERS[kind]
    failed = await failure(source)
    assert re.search(words, str(failed)), str(failed)


async def test_a_filter_that_waits_for_what_never_comes_is_ended() -> None:
    limits = FilterLimits(cpu_s=10.0, wait_s=0.3, memory_bytes=LIMITS.memory_bytes)
    failed = await failure(matching("import os", "while True: os.read(0, 1)"), limits)
    assert "longer than 300 ms" in str(failed)
    assert failed.is_over


@pytest.mark.parametrize("is_module", [False, True])
async def test_the_kernel_confines_all_of_the_process(is_module: bool) -> None:
    process = await FilterProcess.start(LIMITS, is_module=is_module)
    try:
        of_process = Path(f"/proc/{process.pid}")
        lines = (line.split(":\t") for line in (of_process / "status").read_text().splitlines())
        status = dict(line for line in lines if len(line) == 2)
        assert (status["Seccomp"], status["NoNewPrivs"], status["Threads"]) == ("2", "1", "1")
        assert {int(status[f"Cap{which}"], 16) for which in ("Inh", "Prm", "Eff")} == {0}
        assert {path.name for path in (of_process / "fd").iterdir()} == {"0", "1", "2"}
    finally:
        await process.end()


# What a kernel lacks, as seen from the process, and the words that say so.
LACKING = {
    "a filter of system calls": ("confinement._SECCOMP_MODE_FILTER = 99", "prctl: Invalid argument"),
    "capabilities": ("confinement._CAPABILITIES_VERSION = 0", "capset: Invalid argument"),
    "limits": ("confinement.resource.RLIMIT_AS = 999", "limits of a filter cannot be set"),
    "a process with one thread": (
        "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()",
        "more than one thread",
    ),
}


@pytest.mark.parametrize("what", LACKING)
def test_a_process_that_cannot_be_confined_reads_no_filter(what: str) -> None:
    broken, words = LACKING[what]
    program = "\n".join(
        (
            "import os",
            "from pyromq.filterserver import confined, confinement",
            broken,
            "confined.main('python', '67108864', str(os.getppid()))",
        )
    )
    done = subprocess.run([sys.executable, "-c", program], input=b"never read", capture_output=True)
    assert HEAD.unpack_from(done.stdout) == (len(done.stdout) - LENGTH.size, 0, ERROR)
    assert words in done.stdout[HEAD.size :].decode()


async def test_a_filter_sees_the_message_and_its_context_and_nothing_of_the_server() -> None:
    process = await FilterProcess.start(LIMITS)
    try:
        source = matching(
            "import json, os",
            "assert not {'HOME', 'PATH'} & os.environ.keys(), os.environ",
            "assert (context.group, context.topic) == ('shop', 'Orders')",
            "assert (message.queue.queue_id, message.queue_offset) == (1, 7)",
            "print('nobody sees this')",
            "return json.loads(message.body)['amount'] > 100 and message.decode()['amount'] < 200",
        )
        await process.load(filter_source(source))
        assert await process.match(1, [RECORD, RECORD]) == [True, True]
        assert await process.match(1, []) == []
    finally:
        await process.end()


ANSWERS_ITSELF = (
    "import os, struct",
    "os.write(1, struct.pack('>IIc?', 6, 2, b'V', True))",  # as its process would, to the second question
    "while True: pass",
)


async def test_a_filter_that_goes_on_after_its_answer_has_spent_the_time_for_the_next() -> None:
    process = await FilterProcess.start(LIMITS)
    try:
        await process.load(filter_source(matching(*ANSWERS_ITSELF)))
        assert not process.goes_on
        assert await process.match(1, [RECORD]) == [True]
        await turn_until(lambda: process.goes_on)
        with pytest.raises(FilterFailed, match="more than 200 ms of CPU time"):
            await process.match(1, [RECORD])
        assert process.is_over
    finally:
        await process.end()


async def test_a_process_of_a_filter_ends_with_its_pipe() -> None:
    process = await FilterProcess.start(LIMITS)
    pid = process.pid
    await process.end()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


# The function `match` of a module in WebAssembly, what else it has, and the words that tell of the failure.
HOSTILE_MODULES = {
    "an endless loop": ("(loop $again (br $again)) unreachable", "", "more than 200 ms of CPU time"),
    "an endless start": (
        "i32.const 1",
        "(func $s (loop $a (br $a))) (start $s)",
        "more than 200 ms of CPU time",
    ),
    "a memory that grows": (
        "(loop $again (br_if $again (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) unreachable",
        "",
        "unreachable",
    ),
    "a large table": ("i32.const 1", "(table 100000000 funcref)", "out of memory"),
    "deep recursion": ("(call $deep)", "(func $deep (result i32) (call $deep))", "call stack exhausted"),
    "a look outside of its memory": ("(i32.load (i32.const -4))", "", "out of bounds memory access"),
    "a division by zero": ("(i32.div_s (i32.const 1) (i32.const 0))", "", "integer divide by zero"),
    "another verdict": ("i32.const 7", "", "match returned 7, not 0 or 1"),
}


@pytest.mark.parametrize("attack", HOSTILE_MODULES)
async def test_a_hostile_module_fails_alone(attack: str) -> None:
    body, others, words = HOSTILE_MODULES[attack]
    failed = await failure(module_filter(body, others))
    assert re.search(words, str(failed)), str(failed)
    assert failed.is_over == ("endless" in attack)


# The text of a module that is no filter, or its bytes, and the words that say why.
NO_MODULES: dict[str, tuple[str | bytes, str]] = {
    "bad bytes": (b"\0asm" + bytes(range(100)), "failed to parse WebAssembly"),
    "cut short": (module_filter("i32.const 1")[:40], "failed to parse WebAssembly"),
    "nothing exported": ("(module)", "exports no memory"),
    "no allocate": ('(module (memory (export "memory") 1))', r"no function allocate\(i32\) -> i32"),
    "no match": (
        """(module (memory (export "memory") 1)
            (func (export "allocate") (param i32) (result i32) local.get 0))""",
        r"no function match\(i32, i32, i32\) -> i32",
    ),
    "a match of another type": (
        """(module (memory (export "memory") 1)
            (func (export "allocate") (param i32) (result i32) local.get 0)
            (func (export "match") (param i64) (result i32) i32.const 1))""",
        "no function match",
    ),
    "files": (
        '(module (import "wasi_snapshot_preview1" "path_open" (func)))',
        "imports wasi_snapshot_preview1.path_open: filters get nothing",
    ),
    "a memory larger than all filters may have": ('(module (memory (export "memory") 2000))', "memory"),
    "no room for a message": (
        """(module (memory (export "memory") 1)
            (func (export "allocate") (param i32) (result i32) i32.const -1)
            (func (export "match") (param i32 i32 i32) (result i32) i32.const 1))""",
        "allocate returned 4294967295: there is no room",
    ),
}


@pytest.mark.parametrize("kind", NO_MODULES)
async def test_a_module_that_is_no_filter_is_told_so(kind: str) -> None:
    code, words = NO_MODULES[kind]
    failed = await failure(bytes(wasmtime.wat2wasm(code)) if isinstance(code, str) else code)
    assert re.search(words, str(failed)), str(failed)
    assert not failed.is_over


async def test_a_module_filters_on_after_it_has_failed() -> None:
    process = await FilterProcess.start(LIMITS, is_module=True)
    try:
        await process.load(filter_source(module_filter("unreachable")))
        for _ in range(2):
            with pytest.raises(FilterFailed, match="unreachable"):
                await process.match(1, [RECORD])
        await process.load(filter_source(module_filter("i32.const 1")))
        assert await process.match(1, [RECORD, RECORD]) == [True, True]
        assert await process.match(1, []) == []
    finally:
        await process.end()
