"""Files of logins as tools write them are withheld, by name or by content, and files that look like them travel."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path

import pytest

from dtctl.bundle.scanning import scan
from dtctl.secret_files import rule_of_content
from tests.unit.bundle.trees import sent, write

B64 = base64.b64encode(bytes(range(32))).decode()
HEX = "3f9a1c77d0e4b25896ab"
KEY40 = HEX * 2
KEY48 = "1b2c3d4e5f60718293a4b5c6" * 2
PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n-----END PRIVATE KEY-----\n"
AWS = f"[default]\naws_access_key_id = AKIA{'Q7' * 8}\naws_secret_access_key = {B64[:40]}\n"
KUBECONFIG = "apiVersion: v1\nkind: Config\nclusters: []\nusers:\n- name: me\n  user:\n    token: abcdef.0123456789\n"
SERVICE = {"type": "service_account", "project_id": "p", "private_key": PEM, "client_email": "a@p.iam"}
ADC = {
    "client_id": "1.apps",
    "client_secret": "d-FL95Q",
    "refresh_token": "1//0abcdefghijkl",
    "type": "authorized_user",
}
AUTHS = {"auths": {"https://index.docker.io/v1/": {"auth": "bWU6aHVudGVyMg=="}}}
STATE = {"version": 4, "terraform_version": "1.7.0", "serial": 3, "lineage": "8a2f", "resources": []}
WG = f"[Interface]\nPrivateKey = {B64}\nAddress = 10.8.0.2/24\n\n[Peer]\nPublicKey = {B64}\n"
SECRET = "apiVersion: v1\nkind: Secret\nmetadata: {name: x}\ndata:\n  password: aHVudGVyMg==\n"
NETRC = "machine api.wandb.ai\n  login user\n  password " + KEY40 + "\n"
COOKIES = "# Netscape HTTP Cookie File\n.example.com\tTRUE\t/\tTRUE\t0\tsid\tabc\n"
HASHES = "me:$apr1$2Pq0Zr9m$3w5sU7n0bBf6Yk1LsZ4qX.\n"
PASSWORD = "hunter2"

SECRETS: dict[str, str] = {
    # clouds
    "adc.json": json.dumps(ADC),
    "gcp/key-of-me.json": json.dumps(SERVICE, indent=2),
    "my-user.json": json.dumps(ADC, indent=1),
    "digits-1a2b-firebase-adminsdk-x1.json": json.dumps(SERVICE),
    "google.token": json.dumps({"access_token": "x", "refresh_token": "1//0gabcdefghijklmnop"}),
    "token.json": json.dumps({"token": "ya29", "refreshToken": "1//0gabcdefghijklmnop"}),
    "client_secret.json": json.dumps({"installed": {"client_secret": "GOCSPX-abcdefghijk"}}),
    "oauth.yaml": "client_id: x\nclient_secret: GOCSPX-abcdefghijk\n",
    "aws.ini": AWS,
    "credentials": AWS,
    "s3.conf": f"aws_session_token={B64}{B64}\n",
    "rootkey.csv": "AWSAccessKeyId=AKIAX\nAWSSecretKey=y\n",
    "me_accessKeys.csv": "Access key ID,Secret access key\nAKIAX,y\n",
    ".s3cfg": "secret_key = x\n",
    ".boto": "gs_oauth2_refresh_token = x\n",
    ".passwd-s3fs": f"AKIAX:{B64}\n",
    ".mc/config.json": '{"aliases": {}}',
    "msal_token_cache.json": "{}",
    "accessTokens.json": "[]",
    "me.publishsettings": "<PublishData/>",
    "storage.conf": f"DefaultEndpointsProtocol=https;AccountName=x;AccountKey={B64}\n",
    ".config/doctl/config.yaml": "access-token: dop_v1_x\n",
    ".config/hcloud/cli.toml": "token = 'x'\n",
    ".lambda_cloud/lambda_keys": "api_key = secret_x\n",
    ".runpod/config.toml": "[default]\napi_key = 'x'\n",
    ".vast_api_key": KEY40,
    ".modal.toml": "[me]\ntoken_secret = 'as-x'\n",
    ".ngc/config": "[CURRENT]\napikey = x\n",
    "rclone.txt": "[s3]\ntype = s3\nsecret_access_key = abc\n",
    # registries and packages
    "docker/config.json": json.dumps(AUTHS),
    "registry.json": json.dumps(AUTHS, indent=4),
    "pull.dockerconfigjson": json.dumps(AUTHS),
    "pip.conf": "[global]\nindex-url = https://me:s3cr3t-t0ken@pypi.example.com/simple\n",
    "requirements-private.txt": "--extra-index-url https://__token__:glpat@git.example.com/simple\nnumpy\n",
    "uv.toml": '[[index]]\nurl = "https://u:p4ssw0rd@pypi.example.com/simple"\n',
    "condarc": "channels:\n  - https://conda.example.com/t/ab-12345678-1234-1234-1234-123456789012/me\n",
    "npmrc": f"//registry.npmjs.org/:_authToken={KEY40}\n",
    "conf/npm.ini": "_password=aHVudGVyMg==\n",
    "yarn.yml": 'npmAuthToken: "0123456789abcdef"\n',
    ".pypirc": "[pypi]\npassword = pypi-x\n",
    "auth.json": json.dumps({"github-oauth": {"github.com": "x"}}),
    "composer-logins.json": json.dumps({"http-basic": {"repo.example.com": {"username": "a", "password": "b"}}}),
    ".gem/credentials": ":rubygems_api_key: x\n",
    ".config/pypoetry/auth.toml": "[http-basic.x]\n",
    "maven.xml": "<settings><servers><server><id>x</id><password>s3cret</password></server></servers></settings>",
    "NuGet.Config": '<add key="ClearTextPassword" value="x1" />',
    # networks and machines
    "wg0.conf": WG,
    "wireguard/laptop.ini": WG.replace(" = ", "="),
    "office.ovpn": "client\nremote vpn.example.com\n",
    "home.nmconnection": "[wifi-security]\npsk=hunter2hunter2\n",
    "wifi.conf": 'network={\n  ssid="x"\n  psk="hunter2hunter2"\n}\n',
    "ipsec.secrets": ': PSK "x"\n',
    "host.keytab": "\x05\x02",
    "krb5cc_1000": "\x05\x04",
    "backup-netrc": NETRC,
    "logins/wandb": "machine api.wandb.ai login user password " + KEY40 + "\n",
    "netrc.old": "default login anonymous password me@example.com\n",
    ".config/gh/hosts.yml": "github.com: {oauth_token: x}\n",
    "git-store": "https://me:0123456789abcdef@github.com\n",
    "k8s/access": KUBECONFIG,
    "admin.conf": KUBECONFIG.replace("token: abcdef.0123456789", f"client-key-data: {B64}"),
    "k8s/db.yaml": SECRET,
    "old/kube.yaml": KUBECONFIG,
    ".chef/knife.rb": "client_key 'x'\n",
    "infra/state.json": json.dumps(STATE, indent=2),
    "main.tfplan": "PK",
    "inventory.ini": "[hosts]\na ansible_host=10.0.0.1 ansible_ssh_pass=hunter2\n",
    "group_vars/all": "$ANSIBLE_VAULT;1.1;AES256\n6162\n",
    "users": HASHES,
    "passwd.apache": "me:{SHA}0DPiKuNIrrVmD8IUCuw1hQxNqZc=\n",
    "etc/shadow": "root:$6$rounds$abcdefghijklmnop:19000:0:99999:7:::\n",
    # databases
    "pgpass": "db.example.com:5432:*:me:hunter2\n",
    "pg.txt": "db.example.com:5432:prod:me:hunter2\n",
    "mysql.cnf": "[client]\nuser = me\npassword = hunter2\n",
    "database.toml": 'url = "postgres://me:hunter2@db.example.com/prod"\n',
    "celery.ini": "broker = amqp://guest:s3cr3t@mq:5672//\n",
    "redis.conf.local": "url redis://:hunter2@10.0.0.1:6379/0\n",
    "app.config": 'connectionString="Server=db;Database=x;User Id=me;Password=hunter2;"',
    "mongo.yaml": "uri: mongodb+srv://me:hunter2@cluster0.example.net/db\n",
    "sftp-config.json": "{}",
    "deploy.json": json.dumps({"host": "ftp.example.com", "user": "me", "password": PASSWORD}),
    "filezilla.xml": "<FileZilla3/>",
    # machine learning
    ".jupyter/jupyter_server_config.json": "{}",
    "jupyter_config.json": json.dumps({"PasswordIdentityProvider": {"hashed_password": "argon2:$argon2id$v=19$m=1"}}),
    "runtime/jpserver-17.json": json.dumps({"token": KEY48}),
    "server-17.json": json.dumps({"base_url": "/", "token": KEY48}),
    "kernel-1.json": json.dumps({"key": "a0436f6c-1916", "signature_scheme": "hmac-sha256"}),
    "jupyter_cookie_secret": B64,
    "wandb.yaml": f"project: digits\napi_key: {KEY40}\n",
    "settings.ini": f"[default]\nwandb_api_key = {KEY40}\n",
    "huggingface": "hf_" + "aB3" * 12 + "\n",
    "hf_token.txt": "x",
    "openai_api_key.txt": "x",
    "docker.list": f"MODEL=resnet\nWANDB_API_KEY={KEY40}\n",
    "environment.prod": "export DB_PASSWORD='abcdefgh12345678'\n",
    ".codex/auth.json": "{}",
    ".claude/.credentials.json": "{}",
    ".kamal/secrets": "KAMAL_REGISTRY_PASSWORD=x\n",
    # people
    "cookies.txt": "x",
    "browser/session": COOKIES,
    "passwords.kdb": "x",
    "me.agilekeychain/data": "x",
    "secring.gpg": "x",
    "exported.asc": "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nlQVYBF\n",
    "age/keys": "# created\nAGE-SECRET-KEY-1" + "QYLPMN5HHHFPZAM2" * 3 + "\n",
    "github-recovery-codes.txt": "x",
    ".msmtprc": "password x\n",
    "master.key": HEX,
    "deploy_ed25519": "x",
    "certificate.pkcs12": "x",
}  # fmt: skip

HARMLESS: dict[str, str] = {
    # models, tokenizers and data
    "config.json": json.dumps({"model_type": "bert", "pad_token_id": 0, "hidden_size": 768, "token": None}),
    "tokenizer_config.json": json.dumps({"pad_token": "[PAD]", "tokenizer_class": "BertTokenizer", "add_token": True}),
    "tokens.json": json.dumps({"hello": 1, "password": 2, "secret": 3}),
    "tokenizer.json": json.dumps({"added_tokens": [{"id": 0, "content": "<s>"}], "model": {"type": "BPE"}}),
    "special_tokens_map.json": json.dumps({"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}),
    "vocab.txt": "[PAD]\n[UNK]\npassword\nsecret\ntoken\nlogin\nmachine\n",
    "merges.txt": "#version: 0.2\np assword\n",
    "added_tokens.json": json.dumps({"<mask>": 32000}),
    "generation_config.json": json.dumps({"eos_token_id": 2, "max_new_tokens": 256}),
    "preprocessor_config.json": json.dumps({"image_mean": [0.5]}),
    "model.safetensors.index.json": json.dumps({"weight_map": {"lm_head.weight": "model-1.safetensors"}}),
    "dataset_info.json": json.dumps({"features": {"token": {"dtype": "string"}}}),
    "labels.txt": "0 0.5 0.5 0.2 0.2\n1 0.1 0.2 0.3 0.4\n",
    "wiki.train.tokens": " = Valkyria Chronicles III = \n",
    "results_20130124.token": "1000092795.jpg#0\tTwo young guys with shaggy hair\n",
    "pairs.tsv": "machine\tlogin\tpassword\n",
    "annotations.json": json.dumps({"images": [{"id": 1, "file_name": "a.jpg"}], "type": "instances"}),
    "checkpoint": 'model_checkpoint_path: "model.ckpt-100"\n',
    "hparams.yaml": "learning_rate: 1.0e-4\nmax_tokens: 4096\nseed: 1\n",
    "deepspeed.json": json.dumps({"train_batch_size": 64, "zero_optimization": {"stage": 2}}),
    "accelerate.yaml": "compute_environment: LOCAL_MACHINE\nmachine_rank: 0\nmain_process_port: 29500\n",
    "config.yaml": "wandb:\n  project: digits\n  entity: me\n  mode: offline\n",
    "sweep.yaml": "program: train.py\nmethod: grid\nparameters:\n  token_dropout: {values: [0.0, 0.1]}\n",
    "mlflow.yaml": "tracking_uri: http://mlflow.example.com:5000\nexperiment: digits\n",
    "vocabulary.conf": "PAD_TOKEN=<pad>\nMAX_TOKENS=40960000000000000\nTOKENIZER=bert-base-uncased-2024\n",
    # programs and documents
    "credentials.py": "def load(path: str) -> dict[str, str]: ...\n",
    "secrets.py": "import secrets\n",
    "secrets.md": "# Secrets\n\nWrite `export WANDB_API_KEY=0123456789abcdef0123`.\n",
    "docs/passwords.rst": "machine x login y password z\n",
    "api_key.py": "API_KEY = os.environ['API_KEY']\n",
    "hf_token.py": "token = os.environ['HF_TOKEN']\n",
    "auth.py": "class Auth: ...\n",
    "netrc.py": "machine = 'login'\n",
    "kubeconfig.py": "kind = 'Config'\n",
    "cookies.py": "jar = {}\n",
    "wireguard.md": f"    PrivateKey = {B64}\n",
    "test_urls.py": "URL = 'postgres://me:hunter2@db/prod'\n",
    "train.sh": "export WANDB_API_KEY=${WANDB_API_KEY:?}\n",
    "notebook.ipynb": json.dumps({"cells": [], "metadata": {"kernelspec": {"name": "python3"}}}),
    "README": "Copy .env.example to .env and fill in your password.\n",
    "CHANGELOG": "- tokens are masked\n- password: removed\n",
    "LICENSE": "Permission is hereby granted, free of charge\n",
    # settings without secrets
    "pip.conf": "[global]\nindex-url = https://pypi.example.com/simple\n",
    "requirements.txt": "numpy==1.26.4\ngit+ssh://git@github.com/me/x.git\nx @ https://example.com/x.whl\n",
    "environment.yml": "channels: [conda-forge]\ndependencies: [python=3.11]\n",
    ".condarc": "channels:\n  - conda-forge\n",
    ".yarnrc.yml": "nodeLinker: node-modules\n",
    ".gitconfig": "[user]\n\tname = me\n",
    "uv.toml": '[[index]]\nurl = "https://pypi.example.com/simple"\n',
    "conf/docker/config.json": json.dumps({"credsStore": "desktop", "auths": {}}),
    "daemon.json": json.dumps({"registry-mirrors": ["https://mirror.example.com"]}),
    "k8s/job.yaml": "apiVersion: batch/v1\nkind: Job\nmetadata: {name: train}\nspec: {}\n",
    "k8s/config.yaml": "apiVersion: v1\nkind: ConfigMap\ndata:\n  mode: fast\n",
    "k8s/pod.yaml": "env:\n- valueFrom: {secretKeyRef: {name: db, key: password}}\n",
    "compose.yaml": "services:\n  db:\n    environment:\n      POSTGRES_PASSWORD: ${POSTGRES_PASSWORD}\n",
    "url.conf": "broker = amqp://user:password@localhost/\nproxy = http://proxy:3128/\nredis = redis://${USER}:${PASS}@h\n",
    "wg-public.conf": f"[Peer]\nPublicKey = {B64}\n",
    "main.tf": 'variable "password" { sensitive = true }\n',
    "prod.tfvars.example": 'password = "..."\n',
    "passwd": "root:x:0:0:root:/root:/bin/bash\n",
    "hosts": "10.0.0.1 gpu-1\n10.0.0.2 gpu-2\n",
    "logging.ini": "[handlers]\nkeys=console\n",
    "server.xml": "<Server><Realm password=''/></Server>",
    "maven.xml": "<settings><server><password>${env.TOKEN}</password></server></settings>",
    "external.json": json.dumps({"type": "external_account", "audience": "//iam.googleapis.com/x"}),
    "state.json": json.dumps({"version": 4, "serial": 3, "step": 100}),
    "kernel.json": json.dumps({"argv": ["python", "-m", "ipykernel"], "display_name": "Python 3"}),
    "id_ed25519.pub": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI me\n",
    "keys.txt": "learning_rate\nbatch_size\n",
    "schema.json": json.dumps({"properties": {"host": {"type": "string"}, "password": {"type": "string"}}}),
    "cluster.yaml": "trainer: {secrets: [WANDB_API_KEY], env_file: .env}\n",
    "times.log": "12:30:15:worker:started\n10:3000:a:b:ok\n",
}  # fmt: skip


@pytest.mark.parametrize("name", SECRETS)
def test_file_of_logins_is_withheld(tmp_path: Path, name: str) -> None:
    code = write(tmp_path / "code", {"train.py": "print()\n", name: SECRETS[name]})
    bundle = scan(code)
    assert sent(bundle) == {"train.py"}, "it travels"
    assert [one.rule for one in bundle.withheld] != []


@pytest.mark.parametrize("name", HARMLESS)
def test_file_that_only_looks_like_logins_travels(tmp_path: Path, name: str) -> None:
    code = write(tmp_path / "code", {"main.py": "print()\n", name: HARMLESS[name]})
    assert scan(code).withheld == ()
    assert sent(scan(code)) == {"main.py", name}


def test_a_line_of_dtctlignore_sends_a_file_of_logins(tmp_path: Path) -> None:
    code = write(tmp_path / "code", {"wg0.conf": WG, ".dtctlignore": "!/wg0.conf\n"})
    assert "wg0.conf" in sent(scan(code))


@pytest.mark.parametrize(
    "unit", ["a", "x=", "://a:b", "_", "machine ", ":5432:", "-", "login a password", "token_", "psk=network={"]
)
def test_no_text_takes_longer_than_in_proportion(unit: str) -> None:
    """32 kB of any beginning that a form might continue."""
    before = time.process_time()
    rule_of_content("x.conf", (unit * 32768)[:32768].encode())
    assert time.process_time() - before < 2.0
