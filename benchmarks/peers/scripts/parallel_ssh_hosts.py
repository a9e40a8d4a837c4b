"""parallel-ssh with its native client (libssh2), which checks no host keys; a tree goes by its copy_file (SFTP)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from gevent import joinall
from pssh.clients import ParallelSSHClient
from pssh.config import HostConfig

FIELD, DOING, WORD = json.loads(Path(sys.argv[1]).read_text()), sys.argv[2], sys.argv[3]

client = ParallelSSHClient(
    [address for address, _ in FIELD["hosts"]],
    host_config=[HostConfig(user=user, port=FIELD["port"], private_key=FIELD["key"]) for _, user in FIELD["hosts"]],
    pool_size=FIELD["width"],
    allow_agent=False,
)
if DOING == "push":
    joinall(client.copy_file(WORD, "code", recurse=True), raise_error=True)
else:
    answers = client.run_command(WORD)
    client.join(answers)
    for answer in answers:
        print("\n".join(answer.stdout))
    sys.exit(any(answer.exit_code for answer in answers))
