"""Confines the process of a filter: from then on it can compute, and use its two pipes.

The kernel refuses all system calls but a few, so there are no files, no sockets, no other processes and no
signals, whatever code the filter brings. Root has no power left either. Nothing of this can be undone by the
process.
"""

import ctypes
import os
import platform
import resource
import struct
import sys
from pathlib import Path
from typing import Any, Final

from pyromq.errors import StateError

_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38
_SECCOMP_MODE_FILTER = 2
_KILL_PROCESS, _REFUSE, _ALLOW = 0x8000_0000, 0x0005_0000 | 1, 0x7FFF_0000
"""The kernel's verdicts on a system call; the second answers EPERM."""
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER_AT, _ARCHITECTURE_AT = 0, 4
_CAPABILITIES_VERSION = 0x2008_0522
_CAPABILITIES_BYTES: Final = 24
_PIPES: Final = 2
"""Standard input and output; what a process writes to its standard error is dropped."""
_SIGKILL: Final = 9

# Memory, time, chance, locks, the pipes that are open, and the end. A number that is not here is refused.
_X86_64: Final = {
    "read": 0,
    "write": 1,
    "close": 3,
    "fstat": 5,
    "lseek": 8,
    "mmap": 9,
    "mprotect": 10,
    "munmap": 11,
    "brk": 12,
    "rt_sigprocmask": 14,
    "rt_sigreturn": 15,
    "sched_yield": 24,
    "mremap": 25,
    "madvise": 28,
    "getpid": 39,
    "exit": 60,
    "gettimeofday": 96,
    "gettid": 186,
    "time": 201,
    "futex": 202,
    "restart_syscall": 219,
    "clock_gettime": 228,
    "clock_getres": 229,
    "exit_group": 231,
    "getrandom": 318,
}
_AARCH64: Final = {
    "close": 57,
    "lseek": 62,
    "read": 63,
    "write": 64,
    "fstat": 80,
    "exit": 93,
    "exit_group": 94,
    "futex": 98,
    "clock_gettime": 113,
    "clock_getres": 114,
    "sched_yield": 124,
    "restart_syscall": 128,
    "rt_sigprocmask": 135,
    "rt_sigreturn": 139,
    "gettimeofday": 169,
    "getpid": 172,
    "gettid": 178,
    "brk": 214,
    "munmap": 215,
    "mremap": 216,
    "mmap": 222,
    "mprotect": 226,
    "madvise": 233,
    "getrandom": 278,
}
_KERNELS: Final = {"x86_64": (0xC000_003E, _X86_64), "aarch64": (0xC000_00B7, _AARCH64)}
"""By machine: the architecture as the kernel names it, and the system calls that are allowed."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def why_not() -> str | None:
    """Why this machine cannot confine filters; None if it seems able to."""
    if sys.platform != "linux" or platform.machine() not in _KERNELS:
        return f"filters need Linux on {' or '.join(_KERNELS)}, not {sys.platform} on {platform.machine()}"
    return None


def end_with_parent(parent: int) -> None:
    """Let the kernel kill this process when the one that started it ends."""
    _control(_PR_SET_PDEATHSIG, _SIGKILL)
    if os.getppid() != parent:
        raise StateError("the process that started this one has ended")


def confine(memory_bytes: int) -> None:
    """Give up everything but memory, up to that much more than now, and the pipes. Raises StateError."""
    try:
        if len(os.listdir("/proc/self/task")) != 1:  # only this one would be confined
            raise StateError("the process of a filter has more than one thread")
        for number in map(int, os.listdir("/proc/self/fd")):
            if number > _PIPES:
                os.closerange(number, number + 1)
        _limit(resource.RLIMIT_AS, _mapped_bytes() + memory_bytes)
        for none in (
            resource.RLIMIT_CORE,
            resource.RLIMIT_FSIZE,
            resource.RLIMIT_NPROC,
            resource.RLIMIT_NOFILE,
        ):
            _limit(none, 0)
    except (OSError, ValueError) as problem:
        raise StateError(f"the limits of a filter cannot be set: {problem}") from None
    _drop_capabilities()
    _control(_PR_SET_NO_NEW_PRIVS, 1)
    architecture, allowed = _KERNELS[platform.machine()]
    instructions = _instructions(architecture, sorted(allowed.values()))
    code = ctypes.create_string_buffer(instructions, len(instructions))
    program = _Program(len(instructions) // 8, ctypes.addressof(code))
    _control(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(program))


def _limit(what: int, most: int) -> None:
    resource.setrlimit(what, (most, most))


def _mapped_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def _drop_capabilities() -> None:
    """Some of the calls that are allowed do more for root: madvise can take memory from the whole machine."""
    none = struct.pack("Ii", _CAPABILITIES_VERSION, 0), bytes(_CAPABILITIES_BYTES)
    _call("capset", *map(ctypes.create_string_buffer, none))


def _control(what: int, *arguments: int) -> None:
    values = [ctypes.c_ulong(each) for each in (*arguments, 0, 0, 0, 0)[:4]]
    _call("prctl", ctypes.c_int(what), *values)


def _call(name: str, *arguments: Any) -> None:
    if ctypes.CDLL(None, use_errno=True)[name](*arguments) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise StateError(f"the kernel does not confine filters: {name}: {reason}")


def _instructions(architecture: int, allowed: list[int]) -> bytes:
    """The program of the kernel's filter: struct sock_filter, each {code, jump if true, if false, value}."""
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_JUMP_IF_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER_AT),
    ]
    steps += [(_JUMP_IF_EQUAL, len(allowed) - index, 0, number) for index, number in enumerate(allowed)]
    steps += [(_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("HBBI", *step) for step in steps)
