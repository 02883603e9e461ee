"""Settings of topics and groups: one declaration, from which everything else is made."""

import click
import msgspec
import pytest

from pyromq.admin.attributes import GROUP, TOPIC, Attribute
from pyromq.cli.mqadmin.groups import update_sub_group
from pyromq.cli.mqadmin.topics import update_topic
from pyromq.console.languages import LANGUAGES, catalogue
from pyromq.console.operations.groups import PutGroup
from pyromq.console.operations.topics import PutTopic
from pyromq.protocol.requests.groups import SubscriptionGroupConfig
from pyromq.protocol.requests.topics import TopicConfig


@pytest.mark.parametrize(
    ("attributes", "config", "command", "operation"),
    [
        (TOPIC, TopicConfig, update_topic, PutTopic),
        (GROUP, SubscriptionGroupConfig, update_sub_group, PutGroup),
    ],
    ids=["topics", "groups"],
)
def test_each_is_a_field_of_its_configuration_an_option_and_perhaps_an_input_of_the_form(
    attributes: tuple[Attribute, ...],
    config: type[msgspec.Struct],
    command: click.Command,
    operation: type[msgspec.Struct],
) -> None:
    fields = {field.name for field in msgspec.structs.fields(config)}
    inputs = {field.name for field in msgspec.structs.fields(operation)}
    options = {flag for parameter in command.params for flag in parameter.opts}
    for each in attributes:
        assert (each.field in fields) == (not each.key)
        assert each.key or each.flags
        assert set(each.flags.split()) <= options
        assert bool(each.form) == (each.label is not None) == (each.form in inputs)


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_has_its_texts_in_every_language(language: str) -> None:
    texts = catalogue(language)
    for each in (*TOPIC, *GROUP):
        if each.form:
            assert {f"field.{each.form}", f"row.{each.form}_now", f"row.{each.form}_wanted"} <= texts.keys()
    assert texts["row.max_retries_now"] != texts["field.max_retries"]
