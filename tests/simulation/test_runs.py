"""The simulator itself: runs repeat, plans are data, and time is virtual."""

from datetime import UTC, datetime

import pytest
from tests.simulation.loads.plain import PlainLoad
from tests.simulation.losses import draw_losses
from tests.simulation.plans import Fault, Load, Plan, draw_plan
from tests.simulation.runs import run_forked

from pyromq.clock import SystemClock

PLAN = Plan(
    seed=7,
    loads=(Load("plain", 0.2), Load("tables", 0.3)),
    faults=(
        Fault("kill", after_s=1.0, for_s=2.0),
        Fault("power", after_s=1.0, for_s=2.0),
        Fault("partition", after_s=1.0, for_s=12.0, detail="all both"),
    ),
)


def test_a_plan_is_drawn_from_its_seed_and_survives_json() -> None:
    for seed in range(50):
        plan = draw_plan(seed)
        assert plan == draw_plan(seed)
        assert Plan.from_json(plan.to_json()) == plan
    assert not draw_plan(1, only=()).faults
    assert {fault.kind for fault in draw_plan(1, only=("kill",)).faults} == {"kill"}


def test_losses_are_drawn_from_their_seed_and_all_of_them_are_the_masters() -> None:
    plan = draw_losses(1)
    assert plan == draw_losses(1) != draw_losses(2)
    assert plan.loads
    assert len(plan.faults) >= 30
    assert {fault.target for fault in plan.faults} == {"master"}


def test_only_an_election_of_another_broker_is_a_fail_over() -> None:
    plan = Plan(
        seed=1, loads=(Load("plain", 0.5),), faults=(Fault("kill", 1.0, 1.0), Fault("restart", 1.0, 1.0))
    )
    assert run_forked(plan).totals.failovers == 2
    alone = Plan(seed=1, replicas=1, flush="SYNC_FLUSH", loads=plan.loads, faults=plan.faults)
    assert run_forked(alone).totals.failovers == 0


def test_a_run_of_one_plan_is_the_same_every_time() -> None:
    first, second = run_forked(PLAN), run_forked(PLAN)
    assert first.trace == second.trace
    assert first.events == second.events
    assert first.totals.steps == second.totals.steps
    assert first.totals.failovers >= 2


def _plain_load_asks_for_the_real_time() -> None:
    start = PlainLoad.start

    def ask_and_start(self: PlainLoad) -> None:
        SystemClock().monotonic()
        SystemClock().now_ms()
        SystemClock().since_boot()
        start(self)

    PlainLoad.start = ask_and_start  # type: ignore[method-assign]


def test_a_run_that_asks_for_the_real_time_fails_and_says_where() -> None:
    outcome = run_forked(Plan(seed=3, loads=(Load("plain", 0.2),)), _plain_load_asks_for_the_real_time)
    assert [each.invariant for each in outcome.violations] == ["the real clock"] * 3
    assert all("ask_and_start" in each.text for each in outcome.violations)


def _plain_load_asks_for_the_date() -> None:
    start = PlainLoad.start

    def ask_and_start(self: PlainLoad) -> None:
        assert isinstance(datetime.now(tz=UTC), datetime)
        start(self)

    PlainLoad.start = ask_and_start  # type: ignore[method-assign]


def test_a_run_that_asks_for_the_date_fails_as_well() -> None:
    outcome = run_forked(Plan(seed=3, loads=(Load("plain", 0.2),)), _plain_load_asks_for_the_date)
    assert [each.invariant for each in outcome.violations] == ["the real clock"]


@pytest.mark.parametrize("load", [Load("resets", 0.3), Load("leaving", 0.3), Load("fronted", 0.3)])
def test_operators_of_a_run_live_in_its_time(load: Load) -> None:
    assert run_forked(Plan(seed=5, loads=(load,))).violations == []


def test_a_front_delivers_everything_although_its_consumers_are_slower_than_its_producer() -> None:
    assert run_forked(Plan(seed=5, loads=(Load("fronted", 0.03),), calm_s=20.0)).violations == []


def test_a_cluster_without_faults_keeps_all_its_promises() -> None:
    outcome = run_forked(Plan(seed=3, loads=(Load("plain", 0.2),), restarts_at_end=True))
    assert outcome.violations == []
    assert outcome.totals.acknowledged > 3


def test_ten_minutes_without_a_controller_change_nothing() -> None:
    outcome = run_forked(
        Plan(seed=5, loads=(Load("plain", 0.5),), faults=(Fault("controller", 1.0, 600.0, detail="kill"),))
    )
    assert outcome.violations == []
    assert outcome.totals.virtual_s > 600


FULL = Fault("full", after_s=3.0, for_s=20.0)


@pytest.mark.parametrize("faults", [(FULL,), (Fault("restart", 6.0, 1.0), FULL)], ids=["full", "restarted"])
def test_a_full_disk_deletes_no_messages_that_are_counted(faults: tuple[Fault, ...]) -> None:
    outcome = run_forked(
        Plan(
            seed=1,
            replicas=1,
            flush="SYNC_FLUSH",
            loads=(Load("plain", 0.1),),
            faults=faults,
            store_settings={"log_segment_bytes": 8192, "queue_flush_thorough_interval_ms": 1000},
        )
    )
    assert outcome.violations == []
