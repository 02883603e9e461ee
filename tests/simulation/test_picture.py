"""The picture of a run shows who was master, what was broken, and when messages were acknowledged."""

from xml.etree import ElementTree

from tests.simulation.picture import Span, faults, masters, picture
from tests.simulation.recording import Event, Outcome, Totals, Violation

OUTCOME = Outcome(
    violations=[Violation("logs differ", "at 7", 9.0)],
    trace=1,
    totals=Totals(virtual_s=10.0),
    events=[
        Event(0.5, "master", "b2 1"),
        Event(2.0, "fault", "kill  b2 for 3.0 s"),
        Event(3.0, "master", "b1 2"),
        Event(4.0, "fault", "all power one stays away b1 for 60.0 s"),
        Event(5.0, "healed", "kill b2"),
    ],
    acknowledgements=[0.6, 0.7, 1.2, 8.0],
)


def test_a_master_stays_until_the_next_and_a_fault_until_it_is_over() -> None:
    assert list(masters(OUTCOME)) == [
        Span("master", "b2", 0.5, 3.0, "master"),
        Span("master", "b1", 3.0, 10.0, "master"),
    ]
    assert list(faults(OUTCOME)) == [
        Span("fault", "b2", 2.0, 5.0, "kill"),
        Span("fault", "b1", 4.0, 10.0, "all power one stays away"),
    ]


def test_a_picture_has_a_box_for_everything() -> None:
    boxes = [
        each.get("class") for each in ElementTree.fromstring(picture(OUTCOME)).iter() if "rect" in each.tag
    ]
    assert {kind: boxes.count(kind) for kind in boxes} == {
        "lane": 2,
        "master": 2,
        "fault": 2,
        "bar": 3,
        "broken": 1,
    }
