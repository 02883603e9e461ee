"""Celery's own workers on a cluster: what they run, and how often, also if processes are killed."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.celery_worker import TIMEOUT_S, Workers

from pyromq.testing import RunningCluster, cluster

celery = pytest.importorskip("celery")
from celery.exceptions import TimeLimitExceeded  # noqa: E402

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore")]

New = Callable[..., Workers]


@pytest.fixture
def new(rocketmq: RunningCluster, tmp_path: Path) -> Iterator[New]:
    made: list[Workers] = []

    def application(backend: str = "rpc://", **options: Any) -> Workers:
        url = f"rocketmq://{rocketmq.namesrv}/tests"
        made.append(Workers(tmp_path, url, url if backend == "rocketmq" else backend, **options))
        return made[-1]

    yield application
    for each in made:
        each.stop_all()


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_each_task_runs_once_in_every_kind_of_pool(new: New, pool: str) -> None:
    workers = new()
    workers.start("-P", pool)
    results = [workers.tasks.note.delay(str(workers.notes), str(number)) for number in range(100)]
    assert [each.get(timeout=TIMEOUT_S) for each in results] == [str(number) for number in range(100)]
    assert Counter(workers.noted()) == Counter(str(number) for number in range(100))


def test_a_pool_of_green_threads_is_refused_at_once(
    new: New, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    green = str(tmp_path / "green")
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--target", green, "gevent"], check=True)
    monkeypatch.setenv("PYTHONPATH", green, os.pathsep)
    workers = new()
    with pytest.raises(AssertionError, match="gevent has replaced the threads of Python"):
        workers.start("-P", "gevent")


def test_a_task_with_an_eta_a_countdown_or_a_retry_comes_at_its_time(new: New) -> None:
    workers = new()
    workers.start()
    at = datetime.now(UTC) + timedelta(seconds=3)
    later = workers.tasks.note.apply_async((str(workers.notes), "later"), eta=at)
    waiting = [workers.tasks.note.apply_async((str(workers.notes), "far"), countdown=3600) for _ in range(50)]
    assert workers.tasks.note.delay(str(workers.notes), "now").get(timeout=TIMEOUT_S) == "now"
    assert later.get(timeout=TIMEOUT_S) == "later"
    assert datetime.now(UTC) >= at
    assert workers.tasks.third_time.delay().get(timeout=TIMEOUT_S) == 2
    assert workers.noted() == ["now", "later"]
    assert len(waiting) == 50


def test_tasks_survive_children_that_are_killed_under_load(new: New) -> None:
    workers = new(invisible_s=5)
    worker = workers.start()
    for number in range(120):
        workers.tasks.note.delay(str(workers.notes), str(number), 0.2)
    for killed in range(5):
        while len(workers.noted()) <= killed * 15 or not _children(worker.pid):
            time.sleep(0.05)
        os.kill(_children(worker.pid)[0], signal.SIGKILL)
    workers.wait(lambda: set(workers.noted()) == set(map(str, range(120))))
    runs = Counter(workers.noted())
    assert max(runs.values()) <= 2
    assert runs.total() <= 120 + 5, "only what a killed child was working on runs again"


def test_tasks_of_a_worker_that_dies_run_elsewhere_soon(new: New) -> None:
    workers = new(invisible_s=5)
    worker = workers.start(name="first")
    for number in range(20):
        workers.tasks.begin.delay(str(workers.notes), str(number), 1.0)
    workers.wait(lambda: bool(workers.noted()))
    workers.kill(worker)
    workers.start(name="second")
    workers.wait(lambda: {each for each in workers.noted() if " " not in each} == set(map(str, range(20))))
    begun = Counter(each for each in workers.noted() if each.startswith("begun"))
    assert begun.total() <= 20 + 2, "only what the two children were working on begins again"


def test_a_task_of_a_worker_that_dies_runs_again_only_if_it_is_acknowledged_late(new: New) -> None:
    workers = new(invisible_s=5)
    first = workers.start(name="first")
    workers.tasks.begin.delay(str(workers.notes), "late", 8.0)
    workers.tasks.begin_early.delay(str(workers.notes), "early", 60.0)
    asked = workers.app.control.inspect(timeout=5.0, limit=1)

    def acknowledged() -> list[bool]:
        found: dict[str, list[dict[str, Any]]] = asked.active() or {}
        return sorted(each["acknowledged"] for tasks in found.values() for each in tasks)

    workers.wait(lambda: sorted(workers.noted()) == ["begun early", "begun late"], name="first")
    workers.wait(lambda: acknowledged() == [False, True], name="first")
    workers.kill(first)
    workers.start(name="second")
    workers.wait(lambda: "late" in workers.noted(), name="second")
    assert sorted(workers.noted()) == ["begun early", "begun late", "begun late", "late"]


def test_a_task_beyond_its_time_limits_is_told_or_killed_and_does_not_come_again(new: New) -> None:
    workers = new(invisible_s=3)
    workers.start()
    tidy, begin, notes = workers.tasks.begin_and_tidy, workers.tasks.begin, str(workers.notes)
    told = tidy.apply_async((notes, "soft", 60.0), soft_time_limit=1, time_limit=60)
    assert told.get(timeout=TIMEOUT_S) is None
    killed = begin.apply_async((notes, "hard", 60.0), time_limit=2)
    with pytest.raises(TimeLimitExceeded):
        killed.get(timeout=TIMEOUT_S)
    assert workers.tasks.note.delay(notes, "next", 6.0).get(timeout=TIMEOUT_S) == "next"
    assert workers.noted() == ["begun soft", "tidied soft", "begun hard", "next"]


def test_what_beat_sends_again_and_again_runs_once_each(new: New) -> None:
    workers = new()
    workers.start("-B", "-s", str(workers.notes.with_name("schedule")), name="one")
    workers.start(name="two")
    workers.wait(lambda: len(workers.noted()) >= 5, name="one")
    assert len(set(workers.noted())) == len(workers.noted())


def test_a_task_that_outlives_the_invisible_time_runs_once(new: New) -> None:
    workers = new(invisible_s=3)
    workers.start(name="one")
    workers.start(name="two")
    workers.tasks.begin.delay(str(workers.notes), "long", 10.0)
    workers.wait(lambda: "long" in workers.noted())
    assert workers.noted() == ["begun long", "long"]


def test_a_worker_that_is_asked_to_stop_loses_and_repeats_nothing(new: New) -> None:
    workers = new()
    first = workers.start(name="first")
    for number in range(60):
        workers.tasks.note.delay(str(workers.notes), str(number), 0.05)
    workers.wait(lambda: len(workers.noted()) > 5)
    first.send_signal(signal.SIGTERM)
    assert first.wait(TIMEOUT_S) == 0
    workers.start(name="second")
    workers.wait(lambda: len(workers.noted()) >= 60)
    assert Counter(workers.noted()) == Counter(map(str, range(60)))


def test_children_that_are_replaced_all_the_time_publish(new: New) -> None:
    workers = new()
    workers.start("--max-tasks-per-child", "2")
    for number in range(30):
        workers.tasks.pass_on.delay(str(workers.notes), str(number))
    workers.wait(lambda: len(workers.noted()) == 30)
    assert Counter(workers.noted()) == Counter(map(str, range(30)))


def test_tasks_run_after_the_broker_was_killed_and_came_back(new: New, rocketmq: RunningCluster) -> None:
    workers = new()
    workers.start()
    for number in range(20):
        workers.tasks.note.delay(str(workers.notes), str(number), 0.05)
    timed = workers.tasks.note.apply_async((str(workers.notes), "timed"), countdown=5)
    rocketmq.kill_broker()
    rocketmq.start_broker()
    workers.wait(lambda: {*map(str, range(20)), "timed"} <= set(workers.noted()))
    assert max(Counter(workers.noted()).values()) <= 2, "only what could not be acknowledged runs again"
    assert timed.id


def test_workers_are_controlled_and_asked_from_elsewhere(new: New) -> None:
    workers = new()
    one = workers.start(name="one")
    workers.start(name="two")
    control, names = workers.app.control, {"one@tests", "two@tests"}
    asked = control.inspect(timeout=5.0, limit=2)
    assert set(asked.ping()) == names
    assert set(asked.stats()) == names
    assert "secret" not in str(asked.stats())
    assert all(len(tasks) >= 5 for tasks in asked.registered().values())
    assert control.add_consumer("extra", reply=True, timeout=5.0, limit=2)
    queues = asked.active_queues()
    assert {each["name"] for each in queues["one@tests"]} == {"celery", "extra"}
    sent = workers.tasks.note.apply_async((str(workers.notes), "extra"), queue="extra")
    assert sent.get(timeout=TIMEOUT_S) == "extra"
    assert len(control.cancel_consumer("extra", reply=True, timeout=5.0, limit=2)) == 2
    assert len(control.pool_grow(1, reply=True, timeout=5.0, limit=2)) == 2
    control.shutdown(destination=["one@tests"])
    assert one.wait(TIMEOUT_S) == 0


def test_a_worker_that_is_told_to_shut_down_ends_well_and_loses_nothing(new: New) -> None:
    workers = new()
    worker = workers.start()
    for number in range(30):
        workers.tasks.note.delay(str(workers.notes), str(number), 0.1)
    workers.wait(lambda: bool(workers.noted()))
    workers.app.control.shutdown()
    assert worker.wait(TIMEOUT_S) == 0
    workers.start(name="next")
    workers.wait(lambda: len(workers.noted()) >= 30)
    assert Counter(workers.noted()) == Counter(map(str, range(30)))


def test_a_rate_limit_holds_and_every_task_runs_once(new: New) -> None:
    workers = new()
    workers.start()
    limited = workers.app.control.rate_limit(workers.tasks.note.name, "4/s", reply=True, timeout=5.0, limit=1)
    assert "ok" in next(iter(limited[0].values()))
    began = time.monotonic()
    for number in range(12):
        workers.tasks.note.delay(str(workers.notes), str(number))
    workers.wait(lambda: len(workers.noted()) == 12)
    assert time.monotonic() - began >= 2.0, "twelve tasks, of which four may begin in a second"
    assert Counter(workers.noted()) == Counter(map(str, range(12)))


def test_workers_with_many_queues_share_them_and_run_each_task_once(new: New) -> None:
    workers = new()
    queues = [f"queue{number}" for number in range(20)]
    for name in ("first", "second"):
        workers.start("-Q", ",".join(queues), name=name)
    for number in range(100):
        workers.tasks.begin.apply_async(
            (str(workers.notes), str(number), 0.05), queue=queues[number % len(queues)]
        )
    wanted = Counter(f"{begun}{number}" for number in range(100) for begun in ("begun ", ""))
    workers.wait(lambda: len(workers.noted()) >= 200)
    assert Counter(workers.noted()) == wanted
    done = [
        sum(each["total"].values())
        for each in workers.app.control.inspect(timeout=5.0, limit=2).stats().values()
    ]
    assert all(done), "no worker hides the others' tasks"


def test_a_revoked_task_does_not_run(new: New) -> None:
    workers = new()
    workers.start("-c", "1")
    running = workers.tasks.begin.delay(str(workers.notes), "running", 60.0)
    waiting = workers.tasks.note.delay(str(workers.notes), "waiting")
    workers.wait(lambda: workers.noted() == ["begun running"])
    waiting.revoke()
    running.revoke(terminate=True, signal="SIGKILL")
    assert workers.tasks.note.delay(str(workers.notes), "next").get(timeout=TIMEOUT_S) == "next"
    assert workers.noted() == ["begun running", "next"]


def test_a_task_for_later_that_no_worker_saw_revoked_is_taken_back(tmp_path: Path) -> None:
    with cluster(tmp_path / "cluster", recalls=True) as running:
        url = f"rocketmq://{running.namesrv}/tests"
        workers = Workers(tmp_path, url, url, recall=True)
        later = workers.tasks.note.apply_async((str(workers.notes), "later"), countdown=20)
        later.revoke()
        workers.start()
        try:
            with pytest.raises(celery.exceptions.TaskRevokedError):
                later.get(timeout=TIMEOUT_S)
            assert workers.tasks.note.delay(str(workers.notes), "next").get(timeout=TIMEOUT_S) == "next"
            assert workers.noted() == ["next"]
        finally:
            workers.stop_all()


def test_a_monitor_sees_what_happens_to_a_task(new: New) -> None:
    workers = new()
    seen: list[dict[str, Any]] = []
    ready = threading.Event()

    def watch() -> None:
        with workers.app.connection() as connection:
            receiver = workers.app.events.Receiver(connection, handlers={"*": seen.append})
            ready.set()
            for _ in receiver.itercapture(limit=None, timeout=TIMEOUT_S, wakeup=True):
                if any(each["type"] == "task-succeeded" for each in seen):
                    return

    workers.start("-E")
    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    ready.wait()
    workers.wait(lambda: any(each["type"].startswith("worker") for each in seen))
    workers.tasks.add.delay(1, 2)
    watching.join(TIMEOUT_S)
    kinds = {each["type"] for each in seen}
    assert {"task-received", "task-started", "task-succeeded"} <= kinds


def test_results_are_kept_in_a_topic_and_chords_end(new: New) -> None:
    workers = new("rocketmq")
    workers.start()
    add, total = workers.tasks.add, workers.tasks.total
    assert add.delay(1, 2).get(timeout=TIMEOUT_S) == 3
    failed = workers.tasks.fails.delay()
    with pytest.raises(ValueError, match="on purpose"):
        failed.get(timeout=TIMEOUT_S)
    assert failed.state == "FAILURE"
    assert celery.chain(add.s(1, 2), add.s(10)).delay().get(timeout=TIMEOUT_S) == 13
    group = celery.group(add.s(number, number) for number in range(4))()
    assert group.get(timeout=TIMEOUT_S) == [0, 2, 4, 6]
    assert celery.chord([add.s(number, 1) for number in range(4)])(total.s()).get(timeout=TIMEOUT_S) == 10
    failed.forget()
    assert workers.app.AsyncResult(failed.id).state == "PENDING"


def test_results_of_rpc_can_be_looked_at_instead_of_waited_for(new: New) -> None:
    workers = new()
    workers.start()
    add = workers.tasks.add
    first = add.delay(1, 2)
    workers.wait(first.ready)
    assert first.get(timeout=TIMEOUT_S) == 3
    assert add.delay(2, 2).get(timeout=TIMEOUT_S) == 4  # results are consumed from now on
    third = add.delay(3, 2)
    workers.wait(third.ready)
    assert (third.state, third.result) == ("SUCCESS", 5)


def test_a_task_of_an_hour_ago_that_expired_does_not_run(new: New) -> None:
    workers = new()
    old = datetime.now(UTC) - timedelta(hours=1)
    workers.tasks.note.apply_async((str(workers.notes), "old"), expires=old)
    workers.start()
    assert workers.tasks.note.delay(str(workers.notes), "new").get(timeout=TIMEOUT_S) == "new"
    assert workers.noted() == ["new"]


def _children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return found
