"""Secrets are masked wherever they are shown: by their values, and by their forms."""

from __future__ import annotations

import base64
import html
import json
import re
import shlex
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, urlencode
from xml.sax import saxutils

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.agent.host.secrets import Masks, hide_text, is_secret_name, token_in
from dtctl.agent.rooms.execute.serving import Pipe
from tests.fuzz import cases

TOKENS = {
    "AWS access key": "AKIA" + "QYLPMN5HHHFPZAM2",
    "Google API key": "AIza" + "SyB-1234567890abcdefghijklmnopqrstu",
    "GitHub token": "ghp_" + "a1B2c3D4" * 4 + "e5F6",
    "GitLab token": "glpat-" + "a1B2c3D4e5F6g7H8i9J0",
    "Hugging Face token": "hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH",
    "Slack token": "xoxb-" + "123456789012-abcdefGHIJKL",
    "OpenAI or Anthropic key": "sk-" + "proj-a1B2c3D4e5F6g7H8i9J0k1L2",
    "Stripe key": "sk_live_" + "a1B2c3D4e5F6g7H8",
    "npm token": "npm_" + "a1B2c3D4e5F6" * 3,
    "age key": "AGE-SECRET-KEY-1" + "QYLPMN5HHHFPZAM2" * 3,
    "JSON web token": "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0.c2lnbmF0dXJl",
    "webhook": "https://hooks.slack.com/services/" + "T0AAAAAAA/B0AAAAAAA/abcdefghijkl",
}
KEY = "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEpAIBAAKCAQEA0aBcDeFgHiJkLmNoPqRsTuVwXyZ0123456789+/aBcDeFgHi\n" * 4
KEY_END = "aBcDeF==\n-----END RSA PRIVATE KEY-----\n"

HIDDEN = [
    ("Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
    ("{'Authorization': 'Bearer abc.def', 'Accept': '*/*'}", "abc.def"),
    ('{"headers": {"authorization": "token s3cret"}}', "s3cret"),
    ("Proxy-Authorization: Digest username=x", "username=x"),
    ("> Cookie: session=s3cret; theme=dark", "s3cret"),
    ("Set-Cookie: sid=s3cret", "s3cret"),
    ("posting to https://hooks.slack.com/services/T0AAAAAAA/B0AAAAAAA/s3cret", "B0AAAAAAA"),
    ("https://discord.com/api/webhooks/123456/s3cret-s3cret", "s3cret"),
    ("https://api.telegram.org/bot12345678:s3cretAAAA/sendMessage", "s3cretAAAA"),
    ("DB_PASS=hunter2", "hunter2"),
    ("export DB_PASS='two words'", "two words"),
    ("WANDB_KEY=s3cret", "s3cret"),
    ("environ({'WANDB_API_KEY': 's3cret', 'HOME': '/root'})", "s3cret"),
    ("train.py --wandb_key s3cret --steps 10", "s3cret"),
    ("['train.py', '--wandb_key', 's3cret', '--steps', '10']", "s3cret"),
    ("train.py --api-key=s3cret", "s3cret"),
    ("train.py --password s3cret", "s3cret"),
    ("--token s3cret", "s3cret"),
    ("password: s3cret", "s3cret"),
    ('{\\"password\\": \\"s3cret\\"}', "s3cret"),
    ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG", "K7MDENG"),
    ("login with access_token=a1b2c3d4", "a1b2c3d4"),
    ("https://a.blob.core.windows.net/c/b?sv=2020&sig=abc%2Fdef%3D&se=1", "abc%2Fdef"),
    ("DefaultEndpointsProtocol=https;AccountKey=a1B2c3D4e5F6g7H8i9J0==;", "a1B2c3D4"),
    ("https://storage.example/x?X-Amz-Signature=s3cret", "s3cret"),
    ("curl -H bearer a1b2c3d4e5", "a1b2c3d4e5"),
    ("postgres://me:s3cret@db/x", "s3cret"),
    ("postgres://me:s3@cret@db/x", "cret"),
    ("//registry.npmjs.org/:_authToken=a1b2c3d4", "a1b2c3d4"),
    ("os.environ['API_TOKEN'] = 's3cret'", "s3cret"),
    ("PASSWORD            = s3cret", "s3cret"),
    ("\x1b[33mpassword\x1b[0m=\x1b[32m's3cret'\x1b[0m", "s3cret"),
    ("pip install git+https://s3cret@github.com/x/y", "s3cret"),
    (KEY + KEY_END, "MIIE"),
    (KEY + KEY_END, "aBcDeF=="),
    (KEY.replace("\n", "\\n"), "MIIE"),
    *((f"it is {token}.", token[-8:]) for token in TOKENS.values()),
]
SHOWN = [
    "step 100 loss 0.1 key=layer/kernel:0 keys: 4 primary_key=id",
    "tokens/s 1234, token: 50256, eos_token='</s>', pad_token: <pad>",
    "next token: world",
    "NUM_TOKENS=5 MAX_TOKEN: 512",
    "password: None",
    "the author is Ann",
    "--key_dim 64 --num_heads 8 --tokenizer gpt2",
    "epoch pass: 3",
    "secrets: [A, B]",
    "grpc://10.0.0.1:2222 s3://bucket/a@b",
    "a base64 line: " + "aBcDeF0123456789" * 5,
    "sha256 " + "0123456789abcdef" * 4,
    "task-1234567890123456789012345678901234567890",
]


@pytest.mark.parametrize(("text", "secret"), HIDDEN)
def test_a_form_of_secret_is_masked(text: str, secret: str) -> None:
    assert secret in text
    shown = hide_text(text)
    assert secret not in shown
    assert "***" in shown
    assert hide_text(shown) == shown


@pytest.mark.parametrize("text", SHOWN)
def test_text_that_resembles_a_secret_is_not_masked(text: str) -> None:
    assert hide_text(text) == text


@pytest.mark.parametrize(("name", "token"), TOKENS.items())
def test_a_token_is_named_by_its_form(name: str, token: str) -> None:
    assert token_in(b"some: text\nvalue: " + token.encode()) == name
    assert token_in(b"x" + token.encode()[:10]) == ""


def test_names_of_secrets_are_distinguished_from_others() -> None:
    for name in ("API_KEY", "DB_PASS", "wandb_key", "GH_TOKEN", "--auth_token", "passwords", "aws_secret_access_key"):
        assert is_secret_name(name), name
    for name in ("author", "tokenizer", "max_tokens", "keys", "key_dim", "monkey", "identity_file"):
        assert not is_secret_name(name), name


def test_a_private_key_that_is_read_line_by_line_is_masked() -> None:
    masks = Masks([])
    shown = "".join(masks.hide(line.encode()).decode() for line in KEY.splitlines(keepends=True))
    assert shown == "***\n" * 5
    assert Masks([]).hide(KEY.splitlines()[1].encode()) != b"***", "elsewhere it is a line of text"


def test_a_form_is_not_cut_through() -> None:
    data = b"x " * 1000 + b"password=abcdef"
    assert data[Masks([]).cut(data) :].endswith(b" password=abcdef")
    assert Masks([]).cut(b"x " * 1000) == 2000


@cases
@given(st.lists(st.sampled_from([text.encode() for text, _ in HIDDEN] + [b"\n", b"'", b"\\", b"=", b"\xff"])))
def test_masking_keeps_the_number_of_lines(parts: list[bytes]) -> None:
    data = b" ".join(parts)
    assert Masks(["two words"]).hide_lines(data).count(b"\n") == data.count(b"\n")


VALUES = (
    "s3cr'et/\"p+ss&<w>ö d\\1$`",
    "plain-Token_0123456789",
    "p%40ss word;é'",
    "two lines\nof a 'secret' value",
    "😀 tab\tand\x1besc",
)


def nested(text: str) -> str:
    return json.dumps({"env": json.dumps({"KEY": text})})


WRITTEN: dict[str, Callable[[str], str]] = {
    "repr": repr,
    "repr of bytes": lambda text: repr(text.encode()),
    "repr in a repr": lambda text: repr({"x": repr(text)}),
    "JSON": json.dumps,
    "JSON in UTF-8": lambda text: json.dumps(text, ensure_ascii=False),
    "JSON in JSON": nested,
    "JSON of JavaScript": lambda text: json.dumps(text, ensure_ascii=False).replace("/", "\\/"),
    "URL": lambda text: f"https://u:{quote(text, safe='')}@host/",
    "URL in small letters": lambda text: re.sub("%..", lambda one: one.group().lower(), quote(text, safe="")),
    "path of a URL": quote,
    "query of a URL": lambda text: urlencode({"k": text}),
    "HTML": html.escape,
    "HTML without quotes": lambda text: html.escape(text, quote=False),
    "HTML of Jinja": lambda text: html.escape(text, quote=False).replace('"', "&#34;").replace("'", "&#39;"),
    "XML": lambda text: saxutils.escape(text, {'"': "&quot;", "'": "&apos;"}),
    "shell": shlex.quote,
    "shell in double quotes": lambda text: '"' + re.sub(r'([\\"$`])', r"\\\1", text) + '"',
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 of a URL": lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "base64 of a login": lambda text: base64.b64encode(f"me:{text}".encode()).decode(),
    "base64 of a longer login": lambda text: base64.b64encode(f"user:{text}\n".encode()).decode(),
    "base64 of JSON": lambda text: base64.b64encode(f'{{"k": "{text}"}}'.encode()).decode(),
    "hexadecimal": lambda text: text.encode().hex(),
    "hexadecimal in capitals": lambda text: text.encode().hex().upper(),
}


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
@pytest.mark.parametrize("form", WRITTEN)
def test_a_value_is_masked_in_each_form_in_which_programs_show_it(form: str, value: str) -> None:
    written = WRITTEN[form](value)
    shown = Masks([value], forms=False).hide_text(f"before {written} after")
    assert shown.startswith("before ")
    assert shown.endswith(" after")
    left = written
    for part in shown.removeprefix("before ").removesuffix(" after").split("***"):
        left = left.replace(part, "", 1)
    assert "***" in shown
    assert len(left) >= len(written) - 28, "no more than what surrounds it is left"
    for line in value.splitlines():
        assert line not in shown


def test_the_base64_of_a_long_value_is_masked_in_lines_of_any_usual_length() -> None:
    value = "".join(f"{number:03}" for number in range(100))
    for written in (base64.encodebytes(value.encode()).decode(), pem_lines(value)):
        assert re.fullmatch(r"[\s*]*", Masks([value], forms=False).hide_text(written))


def pem_lines(value: str) -> str:
    whole = base64.b64encode(value.encode()).decode()
    return "\n".join(whole[at : at + 64] for at in range(0, len(whole), 64))


@pytest.mark.parametrize(("value", "text"), [("abc", "61 YWJj"), ("x1", "7831 eDE="), ("pass", "70617373 cGFzcw")])
def test_a_short_value_is_masked_as_it_is_and_in_no_encoded_form(value: str, text: str) -> None:
    assert Masks([value], forms=False).hide_text(text) == text
    assert Masks([value], forms=False).hide_text(f"is {value}") == "is ***"


@cases
@given(st.text(min_size=6, max_size=40), st.sampled_from(sorted(WRITTEN)))
def test_any_value_in_any_form_is_masked(value: str, form: str) -> None:
    if "\n" not in value and "\r" not in value and not value.isspace() and value.isprintable():
        assert "***" in Masks([value], forms=False).hide_text(f"x {WRITTEN[form](value)} x")


def test_masking_many_values_takes_time_in_proportion_to_the_text() -> None:
    masks = Masks([f"value-{number}'{number * 7919}" for number in range(30)], forms=False)
    line = b"step 100 loss 0.25 value- of the 'batch' 61626364 dmFsdWUt\n"

    def seconds(lines: int) -> float:
        began = time.process_time()
        masks.hide(line * lines)
        masks.cut(line * lines)
        return time.process_time() - began

    seconds(1000)
    assert seconds(80_000) < 20 * max(seconds(8_000), 0.05)


@pytest.mark.parametrize("at_pauses", [False, True])
@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("password=s3cret-s3cret\n", "cret"),
        ("x Authorization: Basic s3cret\n", "cret"),
        ("postgres://me:s3cret@db/x\n", "cret"),
        ("train --wandb_key s3cret\n", "cret"),
        ("it is known-value\n", "value"),
        ("known-value", "value"),
        ("x " * 6000 + "password=s3cret" + " y" * 5000, "cret"),
    ],
)
def test_secret_split_across_writes_is_masked(text: str, secret: str, at_pauses: bool) -> None:
    data = text.encode()
    begin = data.index(b"=") + 1 if b"=" in data else data.index(secret.encode())
    for cut in range(begin if at_pauses else max(1, begin - 20), min(begin + 20, len(data))):
        sent: list[bytes] = []
        talk: Any = SimpleNamespace(wire=SimpleNamespace(send=lambda _, payload, sent=sent: sent.append(payload)))
        pipe = Pipe(1, Masks(["known-value"]))
        for part in (data[:cut], data[cut:], b""):
            pipe.send(talk, part)
            if at_pauses:
                pipe.rest(talk)
        assert secret.encode() not in b"".join(sent), data[:cut][-30:]


FILLINGS = [
    *("-", "--", "--a-", "--secret", "--a.secret ", "password", "password ", "token=", "_KEY", "_KEY=", "A_KEY "),
    *("eyJ", "eyJhbGciOiJIUzI1.", "eyJhbGciOiJIUzI1.eyJ", "://", "://a", "?sig=", "&a_sig", "?a_key=", "sig="),
    *("-----BEGIN PRIVATE KEY-----\n", "-----BEGIN PRIVATE KEY-----\nAAAAAAAAAAAAAAAAAAAAAAAA\n", "-----BEGIN A "),
    *("bearer ", "bearer a", "authorization: ", "cookie", "cookie:\\", 'secret"', 'secret: "', "api_key", "SG."),
    *("SG.aaaaaaaaaaaaaaaaaaaaaaa.", "ya29.", "client-key-data", "/bot1", "sk-", "hf_", " ", '"', "a", "PRIVATE KEY\n"),
]


@pytest.mark.parametrize("filling", FILLINGS)
def test_a_long_line_takes_time_in_proportion(filling: str) -> None:
    data = (filling * (1 << 18)).encode()[: 1 << 18]
    began = time.process_time()
    Masks([]).hide(data)
    Masks([]).cut(data)
    assert time.process_time() - began < 1.0  # an exponent of two would take several seconds
