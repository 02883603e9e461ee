import msgspec
import pytest

from pyromq.console import rendering
from pyromq.console.bodies import fitting_form, shown_body
from pyromq.console.secrets import masked
from pyromq.console.visible import csv_cell, visible


def test_hidden_characters_are_shown() -> None:
    assert visible("a\u202eb\u200bc\x00d\x1be\x7f") == "a⟨U+202E⟩b⟨U+200B⟩c␀d␛e⟨U+007F⟩"
    assert visible("line\n\ttab 中文 é") == "line\n\ttab 中文 é"


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("plain", '"plain"'),
        ('a "quoted" one', '"a ""quoted"" one"'),
        ("=1+1", '"\'=1+1"'),
        ("@SUM(A1)", '"\'@SUM(A1)"'),
        ("-3", '"\'-3"'),
        ("+3", '"\'+3"'),
    ],
)
def test_no_cell_is_a_formula(text: str, cell: str) -> None:
    assert csv_cell(text) == cell


def test_whatever_is_put_into_a_template_is_escaped_and_shown() -> None:
    template = rendering.environment().from_string("<p title='{{ x }}'>{{ x }}</p>{{ nothing }}")
    page = template.render(x="<script>'\"\u202e", nothing=None)
    assert page == "<p title='&lt;script&gt;&#39;&#34;⟨U+202E⟩'>&lt;script&gt;&#39;&#34;⟨U+202E⟩</p>–"


def test_figures_for_people() -> None:
    assert [rendering.number(each) for each in (None, 0, 0.25, 12.34, 1234567, 99999.4)] == [
        "–",
        "0",
        "0.25",
        "12.3",
        "1,234,567",
        "99,999",
    ]
    assert [rendering.size(each) for each in (None, 5, 2048, 3 * 1024**3)] == [
        "–",
        "5 B",
        "2.0 KiB",
        "3.0 GiB",
    ]
    assert [rendering.duration(each) for each in (None, 12, 61_000, 12_000_000, 90_000_000)] == [
        "–",
        "12 ms",
        "1 min 1 s",
        "3 h 20 min",
        "1 d 1 h",
    ]
    assert rendering.moment(1_700_000_000_007) == "2023-11-14T22:13:20.007Z"
    assert rendering.moment(2**62) == str(2**62)
    assert rendering.percent(0.875) == "87.5 %"


def test_bodies_are_shown_in_the_form_that_fits() -> None:
    assert fitting_form(b'{"a": 1}') == "json"
    assert fitting_form(b"<a/>") == "xml"
    assert fitting_form("grüße".encode()) == "text"
    assert fitting_form(b"\xff\xfe") == "hex"
    assert fitting_form(msgspec.msgpack.encode({"a": 1})) == "msgpack"
    assert fitting_form(msgspec.msgpack.encode({1: 1})) == "hex"
    assert fitting_form(msgspec.msgpack.encode({"a": 1}) + b"\x01") == "hex"
    assert fitting_form(b"a\x00b") == "hex"
    assert shown_body(b'{"a":[1]}', 1000).text == '{\n  "a": [\n    1\n  ]\n}'
    assert shown_body(b"{broken", 1000).form == "text"
    assert shown_body(b"\x00A", 1000).text.startswith("00000000  00 41")


def test_json_is_shown_with_the_values_that_were_sent() -> None:
    sent = '{"price":19.90,"id":12345678901234567.89,"far":1e999,"long":%s,"name":"gr\\u00fc\u00dfe"}' % (
        "9" * 5000
    )
    shown = shown_body(sent.encode(), 10_000)
    assert shown.form == "json"
    for each in (
        '"price": 19.90,',
        '"id": 12345678901234567.89,',
        '"far": 1e999,',
        "9" * 5000,
        '"gr\u00fc\u00dfe"',
    ):
        assert each in shown.text
    for odd in (b'{"a":1,"a":2}', b'{"a":NaN}', b'{"a":"\\ud800"}', b"[" * 100_000):
        assert shown_body(odd, 1_000_000).form == "text"
        assert shown_body(odd, 1_000_000).text == odd.decode()


def test_a_long_body_says_that_it_is_cut() -> None:
    body = shown_body(b"x" * 100, 10)
    assert (body.text, body.size, body.is_cut) == ("x" * 10, 100, True)
    assert not shown_body(b"x" * 10, 10).is_cut


def test_settings_named_like_secrets_are_masked() -> None:
    assert masked("tls.client.keyPassword", "x") == "******"
    assert masked("initAuthenticationUser", "{}") == "******"
    assert masked("brokerName", "x") == "x"
    assert masked("secretKey", "") == ""


def test_a_packed_body_is_shown_as_json_and_cut_like_it() -> None:
    body = msgspec.msgpack.encode({"name": "grüße", "raw": b"\xff"})
    shown = shown_body(body, 1000)
    assert (shown.form, shown.size, shown.is_cut) == ("msgpack", len(body), False)
    assert '"name": "grüße"' in shown.text
    assert shown_body(body, 10).is_cut
    assert shown_body(b"plain", 1000, "msgpack").form == "text"
    assert shown_body(body, 1000, "hex").form == "hex"
    odd = msgspec.msgpack.encode({"a": {b"k": 1, (1, 2): 2}, "e": msgspec.msgpack.Ext(5, b"x")})
    assert "Ext(5, b'x')" in shown_body(odd, 1000).text
