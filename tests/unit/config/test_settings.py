"""Settings: the declaration, the layers, and every view derived from them."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import pytest

from pyromq.config.kinds import HOST, Millis, Seconds, SizeBytes, at_least, between, kind_of
from pyromq.config.loading import Layer, environment_layers, file_layer, load
from pyromq.config.options import setting
from pyromq.config.reference import example_file, markdown
from pyromq.config.settings import NeedsRestart, NoEffect, Settings, UnknownKey, environment_variable
from pyromq.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class KettleSettings(Settings):
    PART: ClassVar[str] = "kettle"
    INCLUDED_FILE_KEY: ClassVar[str] = "kettle.extra.file"

    volume_bytes: SizeBytes = setting(1024, "How much it holds.", check=at_least(1))  # noqa: RUF009
    port: int = setting(80, "Where it pours.", check=between(0, 65535))
    boil_ms: Millis = setting(5000, "How long it boils.", key="boilMillis", mutable=True)  # noqa: RUF009
    idle_seconds: Seconds = setting(120, "When it cools.")  # noqa: RUF009
    whistle: bool = setting(True, "Whether it whistles.", mutable=True)
    colour: Literal["RED", "BLUE"] = setting("RED", "Its colour.", environment="KETTLE_COLOUR")
    host: str = setting("localhost", "Who it is.", check=HOST)
    weight: float = setting(1.5, "Its weight.")
    home: Path = setting(Path("~/kettle"), "Where it stands.")  # noqa: RUF009
    lid: Path | None = setting(None, "Its lid.")  # noqa: RUF009
    password: str | None = setting(None, "Opens it.", secret=True)
    threads: int = setting(8, "Threads of the old kettle.", check=at_least(1), has_effect=False)
    extra_file: Path = setting(Path("/nonexistent/kettle"), "One more file.", key="kettle.extra.file")  # noqa: RUF009


def from_values(**values: str) -> KettleSettings:
    return load(KettleSettings, [Layer("the test", values)]).settings


@pytest.mark.parametrize(
    ("key", "text", "field", "value"),
    [
        ("port", "81", "port", 81),
        ("port", " 81 ", "port", 81),
        ("port", "+81", "port", 81),
        ("whistle", "FALSE", "whistle", False),
        ("colour", "blue", "colour", "BLUE"),
        ("weight", "2.25", "weight", 2.25),
        ("volumeBytes", "4096", "volume_bytes", 4096),
        ("volumeBytes", "16m", "volume_bytes", 16 * 1024 * 1024),
        ("volumeBytes", "2 KiB", "volume_bytes", 2048),
        ("boilMillis", "250", "boil_ms", 250),
        ("boilMillis", "2m", "boil_ms", 120_000),
        ("idleSeconds", "90", "idle_seconds", 90),
        ("idleSeconds", "2h", "idle_seconds", 7200),
        ("host", "::1", "host", "::1"),
        ("lid", "", "lid", None),
        ("lid", "/tmp/lid", "lid", Path("/tmp/lid")),
        ("password", " s3cret ", "password", "s3cret"),
    ],
)
def test_text_becomes_a_value(key: str, text: str, field: str, value: object) -> None:
    assert getattr(from_values(**{key: text}), field) == value


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("port", "80x", "a whole number between 0 and 65535"),
        ("port", "", "a whole number between 0 and 65535"),
        ("port", "65536", "a whole number between 0 and 65535"),
        ("port", "99999999999", "a whole number between 0 and 65535"),
        ("port", "1_000", "a whole number between 0 and 65535"),
        ("port", "٣", "a whole number between 0 and 65535"),
        ("port", "9" * 5000, "a whole number between 0 and 65535"),
        ("whistle", "yes", "true or false"),
        ("colour", "green", "one of RED, BLUE"),
        ("weight", "heavy", "a number"),
        ("weight", "nan", "a number"),
        ("volumeBytes", "0", "a size in bytes of at least 1 (or like 64k, 16m, 1g)"),
        ("volumeBytes", "1t", "a size in bytes of at least 1 (or like 64k, 16m, 1g)"),
        ("boilMillis", "-1", "a time in milliseconds (or like 500ms, 5s, 2m)"),
        ("idleSeconds", "1500ms", "a time in seconds (or like 5s, 2m, 1h)"),
        ("host", "a..b", "a text that is an IP address or a host name"),
        ("host", "", "a text that is an IP address or a host name"),
        ("threads", "0", "a whole number of at least 1"),
    ],
)
def test_a_bad_value_says_what_was_expected_and_where_it_came_from(
    key: str, text: str, expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        from_values(**{key: text})
    assert (caught.value.key, caught.value.expected) == (key, expected)
    assert str(caught.value.value) == text
    assert caught.value.__notes__ == ["from the test"]


def test_a_bad_secret_is_not_repeated() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Vault(Settings):
        PART: ClassVar[str] = "vault"
        pin: int = setting(0, "Opens it.", secret=True)

    with pytest.raises(ConfigError) as caught:
        load(Vault, [Layer("the test", {"pin": "hunter2"})])
    assert "hunter2" not in str(caught.value)


def test_values_given_in_code_are_checked_too() -> None:
    with pytest.raises(ConfigError, match="port=70000"):
        KettleSettings(port=70000)


def test_an_unusable_type_is_a_bug_in_the_declaration() -> None:
    with pytest.raises(TypeError, match="no kind of setting"):
        kind_of(list[int])


def test_later_layers_win(tmp_path: Path) -> None:
    path = tmp_path / "kettle.conf"
    path.write_text("port=1\nboilMillis=1\nidleSeconds=1\n")
    environ = {"KETTLE_COLOUR": "RED", "PYROMQ_KETTLE_BOIL_MILLIS": "2", "PYROMQ_KETTLE_IDLE_SECONDS": "2"}
    layers = [
        file_layer(path),
        *environment_layers(KettleSettings, environ),
        Layer("the command line", {"idleSeconds": "3"}),
    ]
    kettle = load(KettleSettings, layers).settings
    assert (kettle.volume_bytes, kettle.port, kettle.colour) == (1024, 1, "RED")
    assert (kettle.boil_ms, kettle.idle_seconds) == (2, 3)


def test_our_own_variable_goes_before_the_one_rocketmq_users_know() -> None:
    environ = {"PYROMQ_KETTLE_COLOUR": "BLUE", "KETTLE_COLOUR": "RED"}
    assert load(KettleSettings, environment_layers(KettleSettings, environ)).settings.colour == "BLUE"


@pytest.mark.parametrize(
    ("key", "variable"),
    [
        ("listenPort", "PYROMQ_KETTLE_LISTEN_PORT"),
        ("tls.server.certPath", "PYROMQ_KETTLE_TLS_SERVER_CERT_PATH"),
        ("useTLS", "PYROMQ_KETTLE_USE_TLS"),
    ],
)
def test_every_key_has_its_environment_variable(key: str, variable: str) -> None:
    assert environment_variable(KettleSettings, key) == variable


def test_an_unknown_key_is_a_notice_with_the_nearest_known_name() -> None:
    loaded = load(KettleSettings, [Layer("kettle.conf", {"volumebyte": "7", "zzz": "8"})])
    first, second = loaded.notices
    assert isinstance(first, UnknownKey)
    assert (first.key, first.nearest) == ("volumebyte", "volumeBytes")
    assert str(first) == "unknown setting volumebyte from kettle.conf; did you mean volumeBytes?"
    assert isinstance(second, UnknownKey)
    assert (second.key, second.nearest) == ("zzz", None)


def test_an_unknown_variable_with_our_prefix_is_a_notice() -> None:
    loaded = load(
        KettleSettings, environment_layers(KettleSettings, {"PYROMQ_KETTLE_PROT": "1", "OTHER": "2"})
    )
    assert [str(notice) for notice in loaded.notices] == [
        "unknown setting PYROMQ_KETTLE_PROT from the environment; did you mean PYROMQ_KETTLE_PORT?"
    ]


def test_keys_without_effect_are_listed_once() -> None:
    layers = [Layer("a file", {"threads": "3"}), Layer("the command line", {"threads": "4"})]
    loaded = load(KettleSettings, layers)
    assert loaded.settings.threads == 4
    assert [notice for notice in loaded.notices if isinstance(notice, NoEffect)] == [
        NoEffect("accepted, but without effect here: threads (Threads of the old kettle)", ("threads",))
    ]


def test_an_included_file_sits_above_the_main_file_and_below_the_environment(tmp_path: Path) -> None:
    main, extra = tmp_path / "main.conf", tmp_path / "extra.conf"
    main.write_text(f"port=1\nidleSeconds=1\nkettle.extra.file={extra}\n")
    extra.write_text("idleSeconds=2\nboilMillis=2\npassword=sesame\n")
    layers = [
        file_layer(main),
        *environment_layers(KettleSettings, {"PYROMQ_KETTLE_BOIL_MILLIS": "3"}),
    ]
    kettle = load(KettleSettings, layers).settings
    assert (kettle.port, kettle.idle_seconds, kettle.boil_ms) == (1, 2, 3)


def test_a_file_wins_over_a_shared_variable_and_says_so_if_they_differ(tmp_path: Path) -> None:
    file = tmp_path / "kettle.conf"
    file.write_text("colour=BLUE\n")
    for shared, notices in [
        ("RED", [f"colour from {file} is used; KETTLE_COLOUR says RED"]),
        ("BLUE", []),
    ]:
        layers = [file_layer(file), *environment_layers(KettleSettings, {"KETTLE_COLOUR": shared})]
        loaded = load(KettleSettings, layers)
        assert loaded.settings.colour == "BLUE"
        assert [str(each) for each in loaded.notices] == notices


def test_paths_expand_the_home_directory_when_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert KettleSettings().home == Path("/home/ada/kettle")
    assert from_values(home="~/tea").home == Path("/home/ada/tea")


def test_all_values_are_available_under_their_java_names() -> None:
    values = from_values(password="s", whistle="false").as_java_dict()
    assert values["boilMillis"] == "5000"
    assert values["whistle"] == "false"
    assert values["weight"] == "1.5"
    assert "lid" not in values  # java: what is null is left out
    assert "password" not in values


def test_the_description_is_sorted_and_masks_secrets() -> None:
    lines = from_values(password="s").describe().splitlines()
    assert lines == sorted(lines)
    assert "password=******" in lines
    assert "lid=" in lines
    assert "port=80" in lines


def test_an_update_makes_new_settings_and_leaves_the_old_ones() -> None:
    kettle = from_values(port="7")
    changed = kettle.updated({"boilMillis": "9", "port": "8", "nobody": "1"})
    assert (changed.boil_ms, changed.port) == (9, 8)
    assert (kettle.boil_ms, kettle.port) == (5000, 7)
    assert "nobody" not in changed.as_java_dict()


def test_a_bad_update_changes_nothing() -> None:
    kettle = KettleSettings()
    with pytest.raises(ConfigError, match="boilMillis=soon"):
        kettle.updated({"port": "8", "boilMillis": "soon"})
    assert kettle == KettleSettings()


def test_an_update_reaches_keys_that_only_the_file_knew(tmp_path: Path) -> None:
    path = tmp_path / "kettle.conf"
    path.write_text("mystery=1\n")
    kettle = load(KettleSettings, [file_layer(path)]).settings
    assert kettle.updated({"mystery": "2"}).as_java_dict()["mystery"] == "2"


def test_an_update_is_remarked_on_where_it_waits_or_means_nothing() -> None:
    remarks = KettleSettings().remarks_on({"boilMillis": "1", "port": "1", "prt": "1", "threads": "1"})
    assert [type(remark) for remark in remarks] == [NeedsRestart, UnknownKey, NoEffect]
    assert str(remarks[0]) == "port takes effect after a restart"


def test_the_reference_has_a_row_for_every_setting() -> None:
    page = markdown(KettleSettings)
    assert "| `boilMillis` | `5000` | yes | How long it boils. | a time in milliseconds (or like" in page
    assert "The environment variable `KETTLE_COLOUR` sets the default." in page
    assert page.index("## Accepted, without effect") < page.index("| `threads` |")


def test_the_example_file_gives_the_defaults_when_its_keys_are_uncommented(tmp_path: Path) -> None:
    path = tmp_path / "example.conf"
    path.write_text(example_file(KettleSettings).replace("\n#", "\n").replace("\n ", "\n# "))
    loaded = load(KettleSettings, [file_layer(path)])
    assert loaded.notices == ()
    assert loaded.settings.describe() == KettleSettings().describe()
