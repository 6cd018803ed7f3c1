"""What is masked, what is not, and that it does not matter how the text comes."""

from __future__ import annotations

import base64
import random
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from outlast.output import redaction
from outlast.output.redaction import LOOK_BACK, OFF, Mask, searched_for
from outlast.output.secret_search import MASK
from outlast.output.token_formats import LITERALS, LONGEST
from tests.secrecy import HEX, TOKENS, key_block, letters, told

pytestmark = pytest.mark.plain_user  # a user without privileges meets other limits

VALUES = ("correct-horse9", "aaaaaaaa1", "swordfish-swordfish", "pässwörd-1234")
MASKING = Mask(VALUES)


@pytest.mark.parametrize("kind", TOKENS)
@pytest.mark.parametrize("around", ["{}", "token={}\n", '{{"a": "{}"}}', "x '{}' y", "a\\n{}\\n"])
def test_a_well_known_token_is_masked_and_its_kind_is_still_seen(kind, around):
    literal, secret = TOKENS[kind]
    shown = Mask().text(around.format(told(kind)))
    assert secret not in shown
    assert MASK in shown
    assert literal in shown or kind in ("Slack", "AWS secret")
    for line in secret.split("\n"):
        assert len(line) < 16 or line not in shown


@pytest.mark.parametrize("kind", ["RSA PRIVATE KEY", "PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"])
def test_the_header_of_a_key_is_seen_and_the_key_is_not(kind):
    shown = Mask().text(f"before\n{key_block(kind)}\nafter\n")
    assert shown == f"before\n-----BEGIN {kind}-----\n***\n-----END {kind}-----\nafter\n"


def test_a_key_with_headers_and_one_on_a_single_line():
    encrypted = key_block().replace("KEY-----\n", "KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,AB12\n\n", 1)
    assert letters(64, "RSA PRIVATE KEY3") not in Mask().text(encrypted)
    for joint in (" ", "\\n"):
        shown = Mask().text("x: " + key_block().replace("\n", joint) + " y")
        assert shown == f"x: -----BEGIN RSA PRIVATE KEY-----{joint}***{joint}-----END RSA PRIVATE KEY----- y"


EVERYDAY = [
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8\nAuthor: A <a@example.com>",
    "index 83db48f..bf269f4 100644",
    "550e8400-e29b-41d4-a716-446655440000",
    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "sha512-" + base64.b64encode(bytes(range(64))).decode(),
    "data:image/png;base64," + base64.b64encode(random.Random(1).randbytes(3000)).decode(),
    "/usr/lib/python3/dist-packages/sk-learn/risk-assessment-of-the-task-in-question/disk-usage.py",
    "Listening on http://localhost:3000/ and http://[::1]:8080",
    "ssh://git@example.com:22/repo.git git@github.com:a/b.git https://user@example.com/x",
    "npm_config_registry=https://registry.example npm_lifecycle_event=test",
    "hf_hub_download and hf_xet; sk-toggleable__control sk-estimator; whsec and ghp_ alone",
    "the bearer authentication-responsibilities scheme; Authorization: required for this",
    "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQ\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\nMFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBAK==\n-----END PUBLIC KEY-----",
    "grep -r 'BEGIN RSA PRIVATE KEY-----' . # finds keys",
    "eyJ is how they begin; eyJhbGciOiJub25lIn0 alone is a header",
    "TASK SKIPPED SKU SK 12 AKIA is a prefix, ASIA is a continent, MASKED",
    "test_tokens.py::test_it PASSED  [ 12%] 1234567890:AAA",
    "SG.1 hvs.x dapi/v2 glpat- xoxo",
    "\x1b[32m✓\x1b[0m 12:34:56.789 GET /v1/items?cursor=eyJpZCI6MX0 200 OK",
    "postgres://localhost:5432/app redis://cache:6379/0 amqp://guest@host:5672/",
]


@pytest.mark.parametrize("text", EVERYDAY)
def test_everyday_output_is_left_alone(text):
    assert Mask().text(text) == text


def test_random_hashes_and_base64_are_left_alone():
    chosen = random.Random(7)
    for _ in range(200):
        text = f"{chosen.randbytes(20).hex()} {base64.b64encode(chosen.randbytes(60)).decode()} {chosen.random()}"
        assert Mask().text(text) == text


def test_exact_values_are_masked_wherever_they_stand():
    assert MASKING.text("a=correct-horse9, xcorrect-horse9y; swordfish-swordfish") == "a=***, x***y; ***"
    assert MASKING.text("pässwörd-1234!") == "***!"


@pytest.mark.parametrize("value", ["", "true", "1", "short", "password", "development", "/home/me/.ssh/id", "~/key"])
def test_short_values_and_plain_words_are_not_looked_for(value):
    assert list(searched_for(value)) == []


def test_a_value_of_several_lines_is_masked_line_by_line():
    value = f"first line of a secret\nend\n{'z9' * 20}\n"
    assert Mask([value]).text(f"x {'z9' * 20} end first line of a secret") == "x *** end ***"


def test_a_long_value_is_masked_as_a_whole():
    value = letters(5000, "long")
    shown = Mask([value]).text(f"<{value}>")
    assert set(shown) == set("<*>")


PIECES = st.sampled_from(
    [
        *(told(kind) for kind in TOKENS),
        *VALUES,
        *(literal for literal, _ in LITERALS),
        "\n",
        " ",
        "@",
        "-",
        ":",
        "aaaa",
        "é",
    ]
)
TEXTS = st.lists(st.tuples(PIECES, st.sampled_from([1, 2, 9, 5000])), max_size=9).map(
    lambda parts: "".join(text[:size] for text, size in parts)
)


def fed(text: str, sizes: list[int]) -> str:
    out: list[str] = []
    stream, at = MASKING.stream(), 0
    while at < len(text):
        size = sizes[len(out) % len(sizes)]
        out.append(stream.feed(text[at : at + size]))
        at += size
    return "".join(out) + stream.finish()


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.lists(st.integers(1, 80), min_size=1, max_size=6))
@example("xx ghp_" + "a" * 36 + " y", [1])
@example("aaaaaaaaaaaa1", [3])
def test_cutting_changes_nothing(text, sizes):
    whole = MASKING.text(text)
    assert fed(text, sizes) == whole
    stream, data = MASKING.stream(of_bytes=True), text.encode().decode("latin-1")
    out = [stream.feed(data[at : at + sizes[0]]) for at in range(0, len(data), sizes[0])]
    assert ("".join(out) + stream.finish()).encode("latin-1").decode() == whole


@settings(max_examples=200, deadline=None)
@given(TEXTS, st.integers(1, 200))
def test_what_is_shown_early_is_how_it_begins_in_the_end(text, size):
    stream, shown = MASKING.stream(), ""
    for at in range(0, len(text), size):
        shown += stream.feed(text[at : at + size])
        assert MASKING.text(text).startswith(shown)
        assert stream.held <= LONGEST


def masked_bytes(data: bytes) -> bytes:
    stream = MASKING.stream(of_bytes=True)
    return (stream.feed(data.decode("latin-1")) + stream.finish()).encode("latin-1")


@settings(max_examples=200, deadline=None)
@given(TEXTS, st.integers(0, LOOK_BACK))
@example("ghp_" + letters(36, "github") + "postgres://admin:correct-horse@db.example/app", 1)
def test_reading_from_anywhere_tells_no_part_of_a_secret(text, place):
    raw = text.encode()[:LOOK_BACK]
    place %= len(raw) + 1
    spans = MASKING.inside(raw[:place], raw[place:])
    whole, rest = (masked_bytes(one) for one in (raw, raw[place + spans :]))
    for part in rest.split(MASK.encode()):
        assert part in whole


def test_ordinary_text_is_shown_at_once():
    stream = MASKING.stream()
    for text in ("Password: ", "Continue? [y/N]", "50%\r", "Loading", " done: ", "> ", "sk", "-", "Bearer ", "http:"):
        assert stream.feed(text) == text


def test_what_may_be_a_secret_is_held_and_then_told():
    stream = MASKING.stream()
    assert stream.feed("see ghp_abc") == "see ghp_"
    assert stream.held == 3
    assert stream.feed("def\n") == "abcdef\n"
    assert stream.feed("token correct-") == "token "
    assert stream.feed("horse9!") == "***!"
    assert stream.held == 0


def test_masking_twice_is_masking_once():
    text = "\n".join(told(kind) for kind in TOKENS) + "\n".join(VALUES)
    once = MASKING.text(text)
    assert MASKING.text(once) == once


def test_off_changes_nothing():
    text = told("GitHub")
    assert OFF.text(text) == text
    assert OFF.stream().feed(text) == text
    assert OFF.stream(of_bytes=True).feed(text) == text
    assert OFF.count_open_bytes(text.encode()) == OFF.inside(text[:9].encode(), text[9:].encode()) == 0


HOSTILE = {
    **{literal.strip(): literal for literal, _ in LITERALS},
    "url": "://a:b",
    "jwt": "eyJaaaaaaaaaaaa.",
    "key": "PRIVATE KEY-----\nabcdefghijklmnopqrst\n",
    "letters": "a",
    "blanks": " ",
    "hex": HEX,
}


def cost(text: str) -> float:
    best = float("inf")
    for _ in range(3):
        begun = time.process_time()
        MASKING.text(text)
        stream = MASKING.stream()
        for at in range(0, len(text), 4096):
            stream.feed(text[at : at + 4096])
        stream.finish()
        best = min(best, time.process_time() - begun)
    return best


@pytest.mark.parametrize(
    "kind", ["url", "jwt", "key", "letters", "blanks", "eyJ", "glpat-", "pypi-AgE", "Bearer", "sk-"]
)
def test_eight_times_the_text_takes_about_eight_times_as_long(kind):
    few = 20_000
    text = HOSTILE[kind] * (8 * few // len(HOSTILE[kind]))
    small, large = cost(text[:few]), cost(text)
    assert large < 8 * 4 * max(small, 0.002), f"{small * 1000:.2f} ms, then {large * 1000:.2f} ms"


def test_much_text_at_once_is_masked_as_little_is(monkeypatch):
    chosen = random.Random(3)
    for _ in range(40):
        text = "".join(chosen.choices(["word ", "x", "\n", "12 ", "a-b "], k=9000))
        for kind in chosen.sample(list(TOKENS), chosen.choice([0, 1, 2])):
            at = chosen.randrange(len(text))
            text = f"{text[:at]} {told(kind)} {text[at:]}"
        text += " " + told(chosen.choice(list(TOKENS)))[: chosen.choice([0, 5, 12, 99])]
        whole = MASKING.text(text)
        assert fed(text, [17_000]) == whole
        with monkeypatch.context() as plain:
            plain.setattr(redaction, "_MUCH", 1 << 40)
            assert MASKING.text(text) == whole


INVISIBLE = [
    "\u00ad",
    "\u200b",
    "\u200d",
    "\u2060",
    "\u2800",
    "\u3164",
    "\ufe0f",
    "\ufeff",
    "\U000e0041",
    "\u034f\u200c",
]


@pytest.mark.parametrize("between", INVISIBLE)
def test_a_secret_with_what_nobody_sees_in_it_is_masked_however_it_is_cut(between: str) -> None:
    mask = Mask(["correct-horse-battery"])
    text = f"é {between.join(('correct-', 'horse', '-battery'))} ß"
    assert mask.text(text) == f"é {MASK} ß"
    for cut in range(len(text) + 1):
        stream = mask.stream()
        assert stream.feed(text[:cut]) + stream.feed(text[cut:]) + stream.finish() == f"é {MASK} ß"
    data = text.encode()
    for cut in range(len(data) + 1):
        halves = mask.stream(of_bytes=True)
        first, last = data[:cut].decode("latin-1"), data[cut:].decode("latin-1")
        said = halves.feed(first) + halves.feed(last) + halves.finish()
        assert said.encode("latin-1").decode() == f"é {MASK} ß"
    assert not mask.is_clear(b"", data, True)


def test_what_nobody_sees_holds_back_no_more_than_a_bound() -> None:
    stream = Mask(["correct-horse-battery"]).stream()
    said = stream.feed("correct-" + "\u00ad" * 100_000)
    assert len(said) > 90_000
    assert said + stream.feed(" x") + stream.finish() == "correct-" + "\u00ad" * 100_000 + " x"


def test_a_text_with_joiners_and_no_secret_stays_as_it_is() -> None:
    text = "👨‍👩‍👧 می‌خواهم ⚠️ done\n"
    assert Mask(["correct-horse-battery"]).text(text) == text
