"""Secrets are withheld by default, and sent if a line of .dtctlignore names them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from hypothesis import given
from hypothesis import strategies as st

from dtctl.bundle import Bundle, entries
from dtctl.bundle.scanning import scan
from dtctl.operations.credentials import Authority
from dtctl.render.plan import show_left_out
from dtctl.secret_files import BY_NAME, rule_of_content, rule_of_name
from tests.fuzz import cases
from tests.unit.agent.test_masks import TOKENS
from tests.unit.bundle.trees import sent, write

CERTIFICATE = Authority("run").issue("host", coordinates=False).certificate


def names_only(text: object) -> str:
    """Names of tests, which must be the same in every process: keys are made in each one."""
    if not isinstance(text, str):
        return "stays at home" if text else "is sent"
    return "..." if len(text) > 30 or "\n" in text else text


def private_key() -> str:
    pem, none = serialization.Encoding.PEM, serialization.NoEncryption()
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(pem, serialization.PrivateFormat.PKCS8, none).decode()


def openssh_key() -> str:
    pem, none = serialization.Encoding.PEM, serialization.NoEncryption()
    return ed25519.Ed25519PrivateKey.generate().private_bytes(pem, serialization.PrivateFormat.OpenSSH, none).decode()


KEY = private_key()


@pytest.fixture
def code(tmp_path: Path) -> Path:
    return write(tmp_path / "code", {"train.py": "print('training')\n"})


def withheld(bundle: Bundle) -> tuple[str, ...]:
    return tuple(one.path for one in bundle.withheld)


SECRETS = [
    ".env", ".env.local", ".env.swp", ".env~", "prod.env", ".envrc", ".ENV", ".netrc", "_netrc", "keys/id_rsa",
    "id_ed25519", "id_ecdsa_sk", "id_rsa.old", "deploy.pem", "tls.key", "a.p12", "a.PFX", "a.jks", ".pgpass",
    ".git-credentials", ".pypirc", ".npmrc", ".vault-token", ".htpasswd", ".docker/config.json",
    "sub/.docker/config.json", "kaggle.json", ".cache/huggingface/token", "application_default_credentials.json",
    "terraform.tfstate", "infra/terraform.tfstate.backup", "prod.tfvars", "prod.auto.tfvars.json", "secrets.yaml",
    "conf/secrets.json", "credentials.json", ".cargo/credentials.toml", ".cargo/credentials", ".hf_token", "kubeconfig",
    "prod.kubeconfig", ".bash_history", ".zsh_history", ".python_history", ".wandb/settings", "clearml.conf",
    ".mlflow/credentials", ".vault_pass.txt", "vault_password", "client_secret_1.apps.json", ".config/wandb/settings",
]  # fmt: skip
DIRECTORIES = [
    ".kube/config",
    ".terraform.d/credentials.tfrc.json",
    ".config/sops/age/keys.txt",
    ".kaggle/x",
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
    "credentials.py", "wandb/settings", "vault_pass.py", "history", "main.tf", "secrets/README", "aws/config",
]  # fmt: skip


PRIVATE_KEYS = [
    ("deploy", KEY),
    ("id_work", openssh_key()),
    ("notes/copied.txt", "\ufeff\n\n" + KEY),
    ("server.crt", KEY + CERTIFICATE),
    ("login.json", '{"user": "me", "key": "' + KEY.replace("\n", "\\n") + '"}'),
    ("service.conf", 'KEY="' + KEY.replace("\n", "\\n") + '"\n'),
    ("chain.pem", CERTIFICATE + KEY),
    ("old.key", "Bag Attributes\n  friendlyName: me\n" + KEY),
    ("putty", "PuTTY-User-Key-File-3: ssh-ed25519\n"),
    ("armored.txt", "-----BEGIN PGP PRIVATE KEY BLOCK-----\n"),
    ("site.crt", "Bag Attributes\n    friendlyName: site\nKey Attributes: <No Attributes>\n" + KEY + CERTIFICATE),
    ("backup.txt", "of my laptop\n\n" + openssh_key()),
    ("old.conf", "<key>\n" + KEY + "</key>\n"),
    (
        "encrypted",
        "about\n-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0\n\nAAAA",
    ),
    ("gcp.json", '{"type": "service_account", "private_key": "-----BEGIN PRIVATE KEY-----\\nMII"}'),
]
PUBLIC = [
    ("ca.pem", "# our own\n" + CERTIFICATE * 3),
    ("public.key", "-----BEGIN PUBLIC KEY-----\nMFkw\n"),
    ("test_tls.py", f'KEY = """\n{KEY}"""\n'),
    ("README.md", "A key looks like this:\n\n" + KEY),
    ("labels.json", '{"private_key": "no"}'),
    ("notes.txt", "a key begins with\n-----BEGIN PRIVATE KEY-----\nand ends somewhere\n"),
]
WHOLE = "x = '" + TOKENS["GitHub token"] + "'\n" + KEY
"""Secrets in programs, documents and tables."""


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        *((name, "hunter2", (name,)) for name in SECRETS),
        *((name, "hunter2", (name.rpartition("/")[0] + "/",)) for name in DIRECTORIES),
        *((name, content, (name,)) for name, content in PRIVATE_KEYS),
        *((name, "nothing to hide", ()) for name in HARMLESS),
        *((name, content, ()) for name, content in PUBLIC),
        *((name, WHOLE, ()) for name in ("train.py", "README.md", "data.csv", "corpus.jsonl", "run.sh", "a.ipynb")),
    ],
    ids=names_only,
)
def test_secrets_are_withheld_and_reported_and_other_files_are_sent(
    code: Path, name: str, content: str, expected: tuple[str, ...]
) -> None:
    bundle = scan(write(code, {name: content}))
    assert withheld(bundle) == expected
    assert sent(bundle) == ({"train.py"} if expected else {"train.py", name})


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        ("$ANSIBLE_VAULT;1.1;AES256\n6162\n", "Ansible vault"),
        ("# created: 2026\nAGE-SECRET-KEY-1" + "QYLPMN5HHHFPZAM2" * 3 + "\n", "age key"),
        (
            "apiVersion: v1\nusers:\n- user:\n    client-key-data: " + "LS0tLS1CRUdJTiBS" * 4 + "\n",
            "key of a kubeconfig",
        ),
        *((f"value = {token}\n", name) for name, token in TOKENS.items()),
    ],
    ids=names_only,
)
def test_a_token_is_withheld_in_a_file_of_any_name(code: Path, content: str, rule: str) -> None:
    assert scan(write(code, {"conf/some.cfg": content})).withheld == (("conf/some.cfg", rule),)
    write(code, {"conf/some.cfg": content, ".dtctlignore": "!/conf/some.cfg\n"})
    assert "conf/some.cfg" in sent(code)


def test_random_data_contains_no_tokens(code: Path) -> None:
    import base64
    import random

    random.seed(1)
    lines = "".join(base64.b64encode(random.randbytes(48)).decode() + "\n" for _ in range(1500))
    digests = "".join(random.randbytes(32).hex() + "\n" for _ in range(1500))
    large = "a corpus\n" * 20_000 + TOKENS["GitHub token"]
    bundle = scan(write(code, {"images.b64": lines, "index.txt": digests, "corpus.txt": large}))
    assert bundle.withheld == ()


def test_rules_match_the_whole_path_and_not_only_its_part_in_the_code(tmp_path: Path) -> None:
    home = write(tmp_path / ".config", {"gcloud/x": "", "gh/hosts.yml": "", "htop/htoprc": "", "git/credentials": ""})
    bundle = scan(home)
    assert bundle.withheld == (
        ("gcloud/", ".config/gcloud/"),
        ("gh/", ".config/gh/"),
        ("git/credentials", ".config/git/credentials"),
    )
    (tmp_path / "link").symlink_to(home)
    assert scan(tmp_path / "link").withheld == bundle.withheld
    cargo = write(tmp_path / ".cargo", {"credentials": "x", "bin/x": ""})
    assert withheld(scan(cargo)) == ("credentials",)


@pytest.mark.parametrize("prefix", ["", "mirror.git/"])
def test_the_config_of_a_bare_repository_is_withheld(code: Path, prefix: str) -> None:
    names = [f"{prefix}{name}" for name in ("HEAD", "config", "objects/x", "refs/x")]
    bundle = scan(write(code, dict.fromkeys(names, "url = ssh://git@example.com/x")))
    assert withheld(bundle) == (f"{prefix}config",)


@pytest.mark.usefixtures("later")
def test_cached_verdict_of_older_rules_is_recomputed(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(code, {"some.cfg": TOKENS["GitHub token"]})
    with monkeypatch.context() as patched:
        patched.setattr(entries, "_VERSION", 2)
        patched.setattr("dtctl.bundle.scanning.rule_of_content", lambda *_, **__: "")
        assert "some.cfg" in sent(code)
    assert withheld(scan(code)) == ("some.cfg",)


def test_explicit_dtctlignore_line_overrides_secret_rules(code: Path) -> None:
    write(code, {".env": "X=1", "keys/id_rsa": KEY, "gcp.json": '{"private_key": "-----BEGIN PRIVATE KEY"}'})
    write(code, {".aws/config": "x", ".dtctlignore": "!.env\n!/keys/id_rsa\n!gcp.json\n!.aws/\n"})
    bundle = scan(code)
    assert sent(bundle) == {"train.py", ".dtctlignore", ".env", "keys/id_rsa", "gcp.json", ".aws/config"}
    assert withheld(bundle) == ()


@pytest.mark.parametrize("line", ["!*", "!**", "!keys/**", "!*.json", "!.*", "!keys/*"])
def test_pattern_that_matches_everything_does_not_admit_secrets(code: Path, line: str) -> None:
    write(code, {".env": "X=1", "keys/id_rsa": KEY, "gcp.json": '{"private_key": "-----BEGIN PRIVATE KEY"}'})
    write(code, {".dtctlignore": f"*.log\n{line}\n"})
    bundle = scan(code)
    assert withheld(bundle) == (".env", "gcp.json", "keys/id_rsa")
    assert sent(bundle) == {"train.py", ".dtctlignore"}


def test_a_kind_of_file_can_be_allowed(code: Path) -> None:
    write(code, {"a.pem": KEY, "sub/b.pem": KEY, ".env.test": "", ".env": "", ".dtctlignore": "x\n!*.pem\n!.env.*\n"})
    assert withheld(scan(code)) == (".env",)


def test_gitignore_does_not_allow_secrets(code: Path) -> None:
    assert withheld(scan(write(code, {".env": "X=1", ".gitignore": "*.log\n!.env\n"}))) == (".env",)


def test_files_excluded_by_the_users_rules_are_not_reported(code: Path) -> None:
    bundle = scan(write(code, {".env": "X=1", ".gitignore": ".env\n"}))
    assert (withheld(bundle), bundle.skipped) == ((), ((".env", ".gitignore:1 .env"),))


def test_a_dtctlignore_of_exceptions_keeps_the_gitignore(code: Path) -> None:
    write(code, {".gitignore": "*.log\n.env\n/data/\n", ".env": "X=1", "run.log": "", "data/big": "", "sub/x.log": ""})
    assert sent(code) == {"train.py", ".gitignore"}
    write(code, {".dtctlignore": "# say so\n\n!.env\n"})
    assert sent(code) == {"train.py", ".gitignore", ".dtctlignore", ".env"}
    write(code, {".dtctlignore": "!.env\n!/data/\n", "sub/.gitignore": "*\n", "sub/.env": "X=1"})
    assert sent(code) == {"train.py", ".gitignore", ".dtctlignore", ".env", "data/big", "sub/.env"}


def test_a_dtctlignore_with_a_rule_of_its_own_replaces_gitignores(code: Path) -> None:
    write(code, {".gitignore": "*.log\n", "run.log": "", ".env": "X", ".dtctlignore": "scratch\n!.env\n"})
    assert sent(code) == {"train.py", ".gitignore", ".dtctlignore", "run.log", ".env"}
    write(code, {".dtctlignore": ""})
    assert "run.log" in sent(code)


@pytest.mark.usefixtures("later")
def test_a_key_that_was_allowed_once_is_inspected_again(code: Path) -> None:
    write(code, {"deploy": KEY, ".dtctlignore": "!deploy\n"})
    assert "deploy" in sent(code)
    assert "deploy" in sent(code)
    (code / ".dtctlignore").unlink()
    assert "deploy" not in sent(code)


def test_the_env_file_is_not_sent_under_another_name(code: Path) -> None:
    write(code, {"settings": "API_KEY=hunter2\n", "__init__.py": ""})
    os.link(code / "settings", code / "hard_link.txt")
    (code / "copy.txt").write_text("API_KEY=hunter2\n")
    (code / "soft_link.txt").symlink_to("settings")
    write(code, {".dtctlignore": "!settings\n!hard_link.txt\n!copy.txt\n"})
    bundle = scan(code, secret_files=[code / "settings"])
    assert sent(bundle) == {"train.py", ".dtctlignore", "__init__.py"}
    assert bundle.manifest.links == ()
    assert bundle.twins == ("copy.txt", "hard_link.txt")
    assert {one.path for one in bundle.skipped} == {"settings", "soft_link.txt"}


def test_a_hard_link_of_a_secret_outside_is_not_sent(code: Path, tmp_path: Path) -> None:
    (tmp_path / "login").write_text("any form of key")
    os.link(tmp_path / "login", code / "train2.py")
    assert sent(scan(code, secret_files=[tmp_path / "login"])) == {"train.py"}


@pytest.mark.parametrize("content", ["", "\n", "  \n\n"])
def test_empty_env_file_excludes_no_other_file(code: Path, tmp_path: Path, content: str) -> None:
    (tmp_path / "env").write_text(content)
    write(code, {"__init__.py": content})
    assert sent(scan(code, secret_files=[tmp_path / "env", tmp_path / "nowhere"])) == {"train.py", "__init__.py"}


def test_withheld_files_are_reported_in_one_line_with_the_rule_to_send_them(
    code: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show_left_out(scan(write(code, {".env": "X", "keys/id_rsa": KEY})))
    output = capsys.readouterr()
    assert output.err == "not pushed: .env, keys/id_rsa [id_rsa*] (a line such as !.env in .dtctlignore pushes one)\n"
    assert output.out == ""
    show_left_out(scan(write(code, {f".env.{number}": "X" for number in range(15)})))
    assert capsys.readouterr().err.count("\n") == 1


def test_a_long_list_is_folded(code: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_left_out(scan(write(code, {f".env.{number:02}": "X" for number in range(17)})))
    assert (
        ".env.04 [.env.*] and 12 more (a line such as !.env.00 in .dtctlignore pushes one)" in capsys.readouterr().err
    )


@pytest.mark.parametrize("name", ["[a]*?\\.env", ".env.a b", ".env.[x]", "keys [1]/id_rsa"])
def test_the_reported_line_sends_that_very_file(code: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    show_left_out(scan(write(code, {name: "X"})))
    rule = capsys.readouterr().err.partition("a line such as ")[2].removesuffix(" in .dtctlignore pushes one)\n")
    write(code, {".dtctlignore": rule + "\n"})
    assert name in sent(code)


def test_ignored_files_are_reported_in_one_line(code: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_left_out(scan(write(code, {".gitignore": "# data\ndata/\n*.log\n", "data/x": "", "a.log": "", "b.log": ""})))
    expected = "not pushed by your ignore rules: 3 paths: 2 [.gitignore:3 *.log], data/ [.gitignore:2 data/]\n"
    assert capsys.readouterr().err == expected


def test_the_rules_match_the_same_paths_as_git(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text(
        "".join(("**/" + rule if "/" in rule[:-1] else rule) + "\n" for rule in BY_NAME)
    )
    paths = [name for name in [*SECRETS, *HARMLESS, *DIRECTORIES, "a/b/.ssh/x", "x/.env.dist"] if name == name.lower()]
    for path in paths:
        write(tmp_path, {path: ""})
    completed = subprocess.run(
        ["git", "-C", str(tmp_path), "check-ignore", "--stdin", "--no-index"],
        input="\n".join(paths), capture_output=True, text=True, check=False,
    ).stdout.splitlines()  # fmt: skip

    def left_out(path: str) -> bool:
        parts = path.split("/")
        return any(rule_of_name("/".join(parts[:end]), end < len(parts)) for end in range(1, len(parts) + 1))

    assert [path for path in paths if left_out(path)] == completed


@cases
@given(st.text(max_size=60), st.booleans(), st.binary(max_size=2000))
def test_every_name_and_content_has_a_verdict(path: str, is_directory: bool, content: bytes) -> None:
    assert isinstance(rule_of_name(path, is_directory), str)
    assert isinstance(rule_of_content(path, content), str)
    assert rule_of_name(path + "/.env", is_directory=False)
    assert rule_of_content(path, KEY.encode() + content) or path.lower().endswith(".json")


@pytest.mark.parametrize(
    "filling",
    [b"\n", b" ", b"-----BEGIN PRIVATE KEY-----\n ", b"-----BEGIN ", b"-----BEGIN A ", b'"private_key":"-----BEGIN A'],
)
@pytest.mark.parametrize("name", ["x.pem", "x.json", "x"])
def test_no_content_takes_long_to_judge(name: str, filling: bytes) -> None:
    import time

    began = time.process_time()
    rule_of_content(name, (filling * (1 << 20))[: 1 << 20])
    assert time.process_time() - began < 2.0


def test_an_ignored_cluster_file_is_not_reported(code: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = scan(write(code, {".dtctlignore": "cluster.yaml\n", "cluster.yaml": "", "train.py": ""}))
    show_left_out(bundle, code / "cluster.yaml")
    assert capsys.readouterr().err == ""
    show_left_out(bundle, code / "other.yaml")
    assert "cluster.yaml [.dtctlignore:1 cluster.yaml]" in capsys.readouterr().err
