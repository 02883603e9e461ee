"""Fuzzes compiled code that reads strangers' bytes: python -m tests.native_fuzz [--minutes M] [--only a,b]

One target after the other, each in a process under the sanitizers, for an equal share of the time. Inputs
that reach new code are kept under build/native-fuzz: the next run begins with them. A finding does not end
the run: its input is copied to tests/native_fuzz/found, from where `make test` tries it again, for ever.

Exit status 3 says that clang or atheris cannot be had; 1 that something was found.
"""

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.native_fuzz.building import DIRECTORY, ROOT, Unavailable, build, environment
from tests.native_fuzz.inputs import MAX_INPUT_BYTES
from tests.native_fuzz.targets import DICTIONARY, TARGETS

UNAVAILABLE: Final = 3
FOUND: Final = ROOT / "tests" / "native_fuzz" / "found"
_MEMORY_MB: Final = 4096
_INPUT_TIMEOUT_S: Final = 60


class Result(NamedTuple):
    target: str
    executions: int
    coverage: int
    """Edges of compiled code that were reached."""
    features: int
    inputs: int
    seconds: float
    finding: Path | None


def fuzz(target: str, seconds: int, seed: int | None) -> Result:
    corpus, findings, logs = (DIRECTORY / name / target for name in ("corpus", "findings", "logs"))
    for each in (corpus, findings, logs.parent):
        each.mkdir(parents=True, exist_ok=True)
    for data in TARGETS[target].seeds():
        (corpus / hashlib.sha1(data).hexdigest()).write_bytes(data)
    words = DIRECTORY / "dictionary"
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in DICTIONARY))
    before = set(findings.iterdir())
    began = time.monotonic()
    with logs.with_suffix(".log").open("w") as log:
        subprocess.run(
            [
                *(sys.executable, "-m", "tests.native_fuzz.one_target", target),
                f"-max_total_time={seconds}",
                f"-max_len={MAX_INPUT_BYTES}",
                f"-rss_limit_mb={_MEMORY_MB}",
                f"-timeout={_INPUT_TIMEOUT_S}",
                f"-report_slow_units={_INPUT_TIMEOUT_S}",
                f"-dict={words}",
                f"-artifact_prefix={findings}/",
                "-print_final_stats=1",
                *([f"-seed={seed}"] if seed is not None else []),
                str(corpus),
                *([str(FOUND / target)] if (FOUND / target).exists() else []),
            ],
            cwd=ROOT,
            env=environment(),
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
    said = logs.with_suffix(".log").read_text(errors="replace")
    new = sorted(set(findings.iterdir()) - before)
    if new:
        (FOUND / target).mkdir(parents=True, exist_ok=True)
        shutil.copy(new[0], FOUND / target / new[0].name)
    elif "stat::number_of_executed_units" not in said:
        raise SystemExit(f"{target} did not end as it should:\n{said[-3000:]}")
    return Result(
        target,
        _last(r"number_of_executed_units: *(\d+)|^#(\d+)\s", said),
        _last(r"cov: (\d+)", said),
        _last(r"ft: (\d+)", said),
        len(list(corpus.iterdir())),
        time.monotonic() - began,
        new[0] if new else None,
    )


def _escaped(word: bytes) -> str:
    return "".join(chr(each) if chr(each).isalnum() else f"\\x{each:02x}" for each in word)


def _last(pattern: str, text: str) -> int:
    found = re.findall(pattern, text, re.MULTILINE)
    if not found:
        return 0
    last = found[-1]
    return int(last if isinstance(last, str) else next(filter(None, last)))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="native_fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--only", default="", help="targets, separated by commas")
    parser.add_argument("--seed", type=int, default=None)
    chosen = parser.parse_args(arguments)
    names = chosen.only.split(",") if chosen.only else list(TARGETS)
    try:
        build()
        environment()
    except Unavailable as reason:
        sys.stderr.write(f"nothing was fuzzed: {reason}\n")
        return UNAVAILABLE
    results = []
    say("target            executions     edges  features    inputs   seconds")
    for name in names:
        result = fuzz(name, max(1, round(60 * chosen.minutes / len(names))), chosen.seed)
        results.append(result)
        numbers = result.executions, result.coverage, result.features, result.inputs, round(result.seconds)
        say(f"{name:<16}" + "".join(f"{each:>10,}" for each in numbers))
        if result.finding is not None:
            say(f"  FOUND: {result.finding}; build/native-fuzz/logs/{name}.log says what")
    executions, seconds = sum(each.executions for each in results), sum(each.seconds for each in results)
    found = sum(each.finding is not None for each in results)
    say(f"{executions:,} executions in {seconds / 60:.0f} minutes, {found} findings")
    return 1 if found else 0


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
