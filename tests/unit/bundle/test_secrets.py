"""Secrets stay at home without a word, and travel by a word that names them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from hypothesis import given
from hypothesis import strategies as st

from dtctl.bundle import Bundle, scan
from dtctl.bundle.secret_files import BY_NAME, is_private, named_as_secret
from dtctl.operations.up.credentials import Authority
from dtctl.render.left_out import show_left_out
from tests.fuzz import cases

CERTIFICATE = Authority("run").issue("host", coordinates=False).certificate


def names_only(text: str) -> str:
    """For the names of tests, which have to be the same in every process: keys are made anew in each."""
    return "..." if len(text) > 30 or "\n" in text else text


def private_key() -> str:
    pem, none = serialization.Encoding.PEM, serialization.NoEncryption()
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(pem, serialization.PrivateFormat.PKCS8, none).decode()


def openssh_key() -> str:
    pem, none = serialization.Encoding.PEM, serialization.NoEncryption()
    return ed25519.Ed25519PrivateKey.generate().private_bytes(pem, serialization.PrivateFormat.OpenSSH, none).decode()


KEY = private_key()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def code(tmp_path: Path) -> Path:
    return write(tmp_path / "code", {"train.py": "print('training')\n"})


def write(code: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text(text)
    return code


def sent(bundle: Bundle) -> set[str]:
    return {file.path for file in bundle.manifest.files}


SECRETS = [
    ".env", ".env.local", ".env.swp", ".env~", "prod.env", ".envrc", ".ENV", ".netrc", "_netrc", "keys/id_rsa",
    "id_ed25519", "id_ecdsa_sk", "id_rsa.old", "deploy.pem", "tls.key", "a.p12", "a.PFX", "a.jks", ".pgpass",
    ".git-credentials", ".pypirc", ".npmrc", ".vault-token", ".htpasswd", ".docker/config.json", ".kube/config",
    "sub/.docker/config.json", "kaggle.json", ".cache/huggingface/token", "application_default_credentials.json",
]  # fmt: skip
DIRECTORIES = [
    ".ssh/id_work",
    ".ssh/known_hosts",
    ".aws/credentials",
    "old/.aws/config",
    ".config/gcloud/x",
    ".gnupg/x",
]
HARMLESS = [
    ".env.example", ".env.sample", "example.env", "id_map.py", "id_rsa.pub", "id_list", "environment.yml", "env/x.py",
    "tokens.json", "config.json", "kube/config", "monkey.py", "keys.py", "secrets.py", "netrc", "pem",
]  # fmt: skip


@pytest.mark.parametrize("name", SECRETS)
def test_a_file_that_holds_secrets_as_a_rule_stays_at_home_and_is_named(code: Path, name: str) -> None:
    bundle = scan(write(code, {name: "hunter2"}))
    assert (sent(bundle), bundle.withheld) == ({"train.py"}, (name,))


@pytest.mark.parametrize("name", DIRECTORIES)
def test_a_directory_of_secrets_stays_at_home_as_a_whole(code: Path, name: str) -> None:
    bundle = scan(write(code, {name: "hunter2"}))
    assert sent(bundle) == {"train.py"}
    assert bundle.withheld == (name.rpartition("/")[0] + "/",)


@pytest.mark.parametrize("name", HARMLESS)
def test_a_file_whose_name_only_sounds_like_it_is_sent(code: Path, name: str) -> None:
    bundle = scan(write(code, {name: "nothing to hide"}))
    assert (sent(bundle), bundle.withheld) == ({"train.py", name}, ())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("deploy", KEY),
        ("id_work", openssh_key()),
        ("notes/copied.txt", "\ufeff\n\n" + KEY),
        ("server.crt", KEY + CERTIFICATE),
        ("chain.pem", CERTIFICATE + KEY),
        ("old.key", "Bag Attributes\n  friendlyName: me\n" + KEY),
        ("putty", "PuTTY-User-Key-File-3: ssh-ed25519\n"),
        ("armored.txt", "-----BEGIN PGP PRIVATE KEY BLOCK-----\n"),
        ("gcp.json", '{"type": "service_account", "private_key": "-----BEGIN PRIVATE KEY-----\\nMII"}'),
    ],
    ids=names_only,
)
def test_a_private_key_stays_at_home_whatever_it_is_called(code: Path, name: str, content: str) -> None:
    bundle = scan(write(code, {name: content}))
    assert (sent(bundle), bundle.withheld) == ({"train.py"}, (name,))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("ca.pem", "# our own\n" + CERTIFICATE * 3),
        ("public.key", "-----BEGIN PUBLIC KEY-----\nMFkw\n"),
        ("test_tls.py", f'KEY = """\n{KEY}"""\n'),
        ("README.md", "A key looks like this:\n\n" + KEY),
        ("labels.json", '{"private_key": "no"}'),
    ],
    ids=names_only,
)
def test_what_is_public_or_only_shows_a_key_is_sent(code: Path, name: str, content: str) -> None:
    assert name in sent(scan(write(code, {name: content})))


def test_the_users_own_word_is_the_last(code: Path) -> None:
    write(code, {".env": "X=1", "keys/id_rsa": KEY, "gcp.json": '{"private_key": "-----BEGIN PRIVATE KEY"}'})
    write(code, {".aws/config": "x", ".dtctlignore": "!.env\n!/keys/id_rsa\n!gcp.json\n!.aws/\n"})
    bundle = scan(code)
    assert sent(bundle) == {"train.py", ".dtctlignore", ".env", "keys/id_rsa", "gcp.json", ".aws/config"}
    assert bundle.withheld == ()


@pytest.mark.parametrize("line", ["!*", "!**", "!keys/**", "!*.json", "!.*", "!keys/*"])
def test_a_line_that_lets_anything_through_does_not_speak_of_secrets(code: Path, line: str) -> None:
    write(code, {".env": "X=1", "keys/id_rsa": KEY, "gcp.json": '{"private_key": "-----BEGIN PRIVATE KEY"}'})
    write(code, {".dtctlignore": f"*.log\n{line}\n"})
    bundle = scan(code)
    assert bundle.withheld == (".env", "gcp.json", "keys/id_rsa")
    assert sent(bundle) == {"train.py", ".dtctlignore"}


def test_a_kind_of_file_can_be_allowed(code: Path) -> None:
    write(code, {"a.pem": KEY, "sub/b.pem": KEY, ".env.test": "", ".env": "", ".dtctlignore": "x\n!*.pem\n!.env.*\n"})
    assert scan(code).withheld == (".env",)


def test_a_gitignore_is_no_word_on_secrets(code: Path) -> None:
    assert scan(write(code, {".env": "X=1", ".gitignore": "*.log\n!.env\n"})).withheld == (".env",)


def test_what_the_users_rules_leave_out_is_not_told(code: Path) -> None:
    bundle = scan(write(code, {".env": "X=1", ".gitignore": ".env\n"}))
    assert (bundle.withheld, bundle.skipped) == ((), (".env",))


def test_exceptions_alone_leave_the_gitignore_in_force(code: Path) -> None:
    write(code, {".gitignore": "*.log\n.env\n/data/\n", ".env": "X=1", "run.log": "", "data/big": "", "sub/x.log": ""})
    assert sent(scan(code)) == {"train.py", ".gitignore"}
    write(code, {".dtctlignore": "# say so\n\n!.env\n"})
    assert sent(scan(code)) == {"train.py", ".gitignore", ".dtctlignore", ".env"}
    write(code, {".dtctlignore": "!.env\n!/data/\n", "sub/.gitignore": "*\n", "sub/.env": "X=1"})
    assert sent(scan(code)) == {"train.py", ".gitignore", ".dtctlignore", ".env", "data/big", "sub/.env"}


def test_a_dtctlignore_with_a_rule_of_its_own_still_takes_the_place_of_gitignores(code: Path) -> None:
    write(code, {".gitignore": "*.log\n", "run.log": "", ".env": "X", ".dtctlignore": "scratch\n!.env\n"})
    assert sent(scan(code)) == {"train.py", ".gitignore", ".dtctlignore", "run.log", ".env"}
    write(code, {".dtctlignore": ""})
    assert "run.log" in sent(scan(code))


def test_a_key_that_was_allowed_once_is_looked_at_again(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + 3600 * 10**9)
    write(code, {"deploy": KEY, ".dtctlignore": "!deploy\n"})
    assert "deploy" in sent(scan(code))
    assert "deploy" in sent(scan(code))
    (code / ".dtctlignore").unlink()
    assert "deploy" not in sent(scan(code))


def test_the_env_file_is_not_sent_by_another_name(code: Path) -> None:
    write(code, {"settings": "API_KEY=hunter2\n", "__init__.py": ""})
    os.link(code / "settings", code / "hard_link.txt")
    (code / "copy.txt").write_text("API_KEY=hunter2\n")
    (code / "soft_link.txt").symlink_to("settings")
    write(code, {".dtctlignore": "!settings\n!hard_link.txt\n!copy.txt\n"})
    bundle = scan(code, secret_files=[code / "settings"])
    assert sent(bundle) == {"train.py", ".dtctlignore", "__init__.py"}
    assert bundle.manifest.links == ()
    assert bundle.twins == ("copy.txt", "hard_link.txt")
    assert set(bundle.skipped) == {"settings", "soft_link.txt"}


def test_a_hard_link_of_a_secret_outside_is_not_sent(code: Path, tmp_path: Path) -> None:
    (tmp_path / "login").write_text("any form of key")
    os.link(tmp_path / "login", code / "train2.py")
    assert sent(scan(code, secret_files=[tmp_path / "login"])) == {"train.py"}


@pytest.mark.parametrize("content", ["", "\n", "  \n\n"])
def test_an_env_file_that_says_nothing_takes_no_file_along(code: Path, tmp_path: Path, content: str) -> None:
    (tmp_path / "env").write_text(content)
    write(code, {"__init__.py": content})
    assert sent(scan(code, secret_files=[tmp_path / "env", tmp_path / "nowhere"])) == {"train.py", "__init__.py"}


def test_one_line_says_what_was_left_out_and_how_to_send_it(code: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_left_out(scan(write(code, {".env": "X", "keys/id_rsa": KEY})))
    said = capsys.readouterr()
    assert said.err == "not pushed: .env, keys/id_rsa (a line such as !.env in .dtctlignore pushes one)\n"
    assert said.out == ""
    show_left_out(scan(write(code, {f".env.{number}": "X" for number in range(15)})))
    assert capsys.readouterr().err.count("\n") == 1


def test_a_long_list_is_folded(code: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_left_out(scan(write(code, {f".env.{number:02}": "X" for number in range(17)})))
    assert ".env.04 and 12 more (a line such as !.env.00 in .dtctlignore pushes one)" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["[a]*?\\.env", ".env.a b", ".env.[x]", "keys [1]/id_rsa"])
def test_the_line_that_is_told_sends_that_very_file(code: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    show_left_out(scan(write(code, {name: "X"})))
    rule = capsys.readouterr().err.partition("a line such as ")[2].removesuffix(" in .dtctlignore pushes one)\n")
    write(code, {".dtctlignore": rule + "\n"})
    assert name in sent(scan(code))


def test_the_rules_mean_what_they_mean_to_git(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text(
        "".join(("**/" + rule if "/" in rule[:-1] else rule) + "\n" for rule in BY_NAME)
    )
    paths = [name for name in [*SECRETS, *HARMLESS, *DIRECTORIES, "a/b/.ssh/x", "x/.env.dist"] if name == name.lower()]
    for path in paths:
        write(tmp_path, {path: ""})
    told = subprocess.run(
        ["git", "-C", str(tmp_path), "check-ignore", "--stdin", "--no-index"],
        input="\n".join(paths), capture_output=True, text=True, check=False,
    ).stdout.splitlines()  # fmt: skip

    def left_out(path: str) -> bool:
        parts = path.split("/")
        return any(named_as_secret("/".join(parts[:end]), end < len(parts)) for end in range(1, len(parts) + 1))

    assert [path for path in paths if left_out(path)] == told


@cases
@given(st.text(max_size=60), st.booleans(), st.binary(max_size=2000))
def test_any_name_and_any_content_are_judged(path: str, is_directory: bool, content: bytes) -> None:
    assert isinstance(named_as_secret(path, is_directory), bool)
    assert isinstance(is_private(path, content), bool)
    assert named_as_secret(path + "/.env", is_directory=False)
    assert is_private(path, KEY.encode() + content) or path.lower().endswith(".json")


@pytest.mark.parametrize("filling", [b"\n", b" ", b"-----BEGIN ", b"-----BEGIN A ", b'"private_key":"-----BEGIN A'])
@pytest.mark.parametrize("name", ["x.pem", "x.json", "x"])
def test_no_content_takes_long_to_judge(name: str, filling: bytes) -> None:
    import time

    began = time.process_time()
    is_private(name, (filling * (1 << 20))[: 1 << 20])
    assert time.process_time() - began < 2.0
