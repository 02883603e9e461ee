"""The part of `make chaos` about Spark: drivers die at any moment, and every row is where it was promised.

    python -m tests.spark_kills [--kills N] [--minutes M] [--seed S] [--kinds archive,topic] [--each K]
                                [--directory D]

A round kills one pipeline `--each` times, at moments that follow from its seed, then runs it to its end and
counts. The next round has the next pipeline and the next seed. A failure ends the campaign.
"""

import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from random import Random

import pytest
from tests.spark_kills.jobs import Job
from tests.spark_kills.kinds import KINDS
from tests.spark_kills.programs import Pipeline
from tests.spark_kills.rounds import Deaths, run_round
from tests.spark_kills.stores import home_with_s3
from tests.spark_kills.topics import topics_of
from tests.support.object_store import faulty_store, lead_to
from tests.support.scratch import IN_MEMORY
from tools.rounds import Rounds, options, say

from pyromq.testing import cluster


def main(arguments: Sequence[str]) -> int:
    parser = options("spark kills", __doc__, minutes=30)
    parser.add_argument("--kills", type=int, default=500)
    usual = ",".join(kind for kind in KINDS if not KINDS[kind].is_in_store)
    parser.add_argument("--kinds", default=usual, help="those in S3 need Maven Central")
    parser.add_argument("--each", type=int, default=5, help="how often a round kills")
    parser.add_argument("--directory", default=IN_MEMORY, help="where pipelines have their files")
    chosen = parser.parse_args(arguments)
    kinds = chosen.kinds.split(",")
    total: dict[str, Deaths] = {}
    done_rounds: Counter[str] = Counter()
    again = f"python -m tests.spark_kills --minutes 0 --each {chosen.each} --kinds"
    rounds = Rounds("spark kills", chosen, lambda seed: f"{again} {kinds[seed % len(kinds)]} --seed {seed}")

    patch = pytest.MonkeyPatch()
    with (
        tempfile.TemporaryDirectory(dir=chosen.directory, ignore_cleanup_errors=True) as scratch,
        cluster() as running,
        topics_of(running.namesrv, running.broker_address) as topics,
        faulty_store() if any(KINDS[kind].is_in_store for kind in kinds) else nullcontext() as store,
    ):
        if store is not None:
            lead_to(store.url(), patch)
            Job.store = store
            patch.setenv("SPARK_HOME", str(home_with_s3(Path(scratch, "spark"))))
        Pipeline.loaded_classes = Path(scratch, "classes.jsa")
        run_round("archive", topics, running.namesrv, Path(scratch, "first", "job"), Random(0), kills=0)

        def one_round(seed: int) -> int:
            kind = kinds[seed % len(kinds)]
            directory = Path(scratch, str(seed), "job")
            try:
                done = run_round(kind, topics, running.namesrv, directory, Random(seed), chosen.each)
            except AssertionError:
                kept = Path(tempfile.mkdtemp(prefix="pyromq-killed-"), str(seed))
                shutil.copytree(directory.parent, kept, ignore=shutil.ignore_patterns("*.sock"))
                say(f"Its files are in {kept}")
                raise
            shutil.rmtree(directory.parent, ignore_errors=True)
            total.setdefault(kind, Deaths()).add(done)
            done_rounds[kind] += 1
            say(f"spark kills: {kind} seed {seed}: {done}")
            return 0

        rounds.run(one_round, is_enough=lambda: _kills(total) >= chosen.kills)
    for kind, done in total.items():
        say(f"spark kills: {kind}: {done.kills} kills in {done_rounds[kind]} rounds: {done}")
    return rounds.report(f"{_kills(total)} kills")


def _kills(total: Mapping[str, Deaths]) -> int:
    return sum(done.kills for done in total.values())


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
