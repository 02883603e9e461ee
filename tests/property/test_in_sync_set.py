"""A master knows who is in sync for certain, and waits for all who may be, whatever its proposals became."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples

from pyromq.broker.replication.in_sync_set import InSyncSet

OWN, OTHERS = 1, (2, 3)
END = 100
MAX_BEHIND_S = 10.0

REPLICA = st.sampled_from(OTHERS)
STEPS = st.one_of(
    st.tuples(st.just("reports"), REPLICA),
    st.tuples(st.just("is gone"), REPLICA),
    st.tuples(
        st.sampled_from(["proposes", "is answered", "waits in vain", "asks", "time passes"]), st.just(0)
    ),
    st.tuples(st.just("arrives"), st.integers(0, 1)),
)


class Controller:
    """It takes a proposal of the present version, whenever that arrives."""

    def __init__(self, members: frozenset[int]) -> None:
        self.members, self.version = members, 1

    def take(self, version: int, wanted: frozenset[int]) -> bool:
        if version != self.version:
            return False
        self.members, self.version = wanted, version + 1
        return True


@given(st.frozensets(REPLICA), st.lists(STEPS, max_size=40))
@settings(max_examples=examples(600))
def test_the_set_that_counts_is_between_the_certain_and_the_awaited_brokers(
    replicas: frozenset[int], steps: list[tuple[str, int]]
) -> None:
    controller = Controller(replicas | {OWN})
    master = InSyncSet(OWN, controller.members, controller.version, epoch_start=0)
    on_the_way: list[tuple[int, frozenset[int]]] = []
    now = 0.0
    for step, number in steps:
        if step == "reports":
            master.reported(number, END, END, now)
        elif step == "is gone":
            master.lost(number)
        elif step == "proposes":
            if (wanted := master.propose(END, now, MAX_BEHIND_S)) is not None:
                on_the_way.append((master.version, wanted))
        elif step == "arrives" and number < len(on_the_way):
            controller.take(*on_the_way.pop(number))
        elif step == "is answered" and (asked := (master.version, master.proposed)) in on_the_way[-1:]:
            on_the_way.pop()
            if controller.take(*asked):
                master.confirmed_by_controller(controller.members, controller.version, is_answer=True)
            else:
                master.refused()
        elif step == "waits in vain":
            master.unanswered()
        elif step == "asks":
            master.confirmed_by_controller(controller.members, controller.version)
        elif step == "time passes":
            now += 2 * MAX_BEHIND_S
        assert master.certain <= controller.members <= master.awaited
