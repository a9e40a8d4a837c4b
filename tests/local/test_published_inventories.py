"""What `import` reads in published inventories and group files is what Ansible and ClusterShell read in them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dtctl.rooms.importing import ansible, clush
from dtctl.rooms.importing.found import Source
from tests.environments import environment
from tests.unit.operations.published import Published, published

pytestmark = pytest.mark.nightly

ANSIBLE = [one for one in published("ansible") if one.refusal is None]
CLUSH = [one for one in published("clush") if one.refusal is None and not one.text.startswith("@")]


def answer(argv: list[str], place: Path, **variables: str) -> str:
    environ = {**os.environ, "HOME": str(place), "LC_ALL": "C.UTF-8", **variables}
    done = subprocess.run(argv, cwd=place, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def members(listed: dict[str, Any], group: str) -> dict[str, None]:
    own = listed.get(group, {})
    below = [host for child in own.get("children", []) for host in members(listed, child)]
    return dict.fromkeys([*own.get("hosts", []), *below])


@pytest.mark.parametrize("source", ANSIBLE, ids=lambda one: one.title)
def test_an_inventory_is_read_as_ansible_reads_it(source: Published, tmp_path: Path) -> None:
    is_ini = source.title.startswith("ini")
    file = tmp_path / ("hosts.ini" if is_ini else "hosts.yml")
    file.write_text(source.text)
    program = str(environment("inventories").with_name("ansible-inventory"))
    listed = json.loads(answer([program, "-i", str(file), "--list"], tmp_path, ANSIBLE_INVENTORY_ENABLED="ini,yaml"))
    found = (ansible.ini if is_ini else ansible.yaml)(Source(str(file), source.text))
    theirs = {group: members(listed, group) for group in listed if group not in ("_meta", "all", "ungrouped")}
    assert dict(found.groups) == {group: tuple(hosts) for group, hosts in theirs.items() if hosts}
    for machine in found.machines:
        said = listed["_meta"]["hostvars"].get(machine.name, {})
        user = said.get("ansible_user", said.get("ansible_ssh_user"))
        reached = machine.target or machine.name, machine.user, machine.port or 22
        assert reached == (said.get("ansible_host", machine.name), user, said.get("ansible_port", 22))


@pytest.mark.parametrize("source", CLUSH, ids=lambda one: one.title)
def test_groups_are_read_as_clustershell_reads_them(source: Published, tmp_path: Path) -> None:
    is_yaml = source.title.startswith("yaml")
    file = tmp_path / ("groups.yaml" if is_yaml else "groups")
    file.write_text(source.text)
    found = clush.clush(Source(str(file), source.text))
    first = source.text.partition(":")[0].splitlines()[-1] if is_yaml else "local"
    upcalls = f"[local]\nmap: sed -n 's/^$GROUP:\\(.*\\)/\\1/p' {file}\nlist: sed -n 's/^\\([^:]*\\):.*/\\1/p' {file}\n"
    (tmp_path / "groups.conf").write_text(
        f"[Main]\ndefault: {first}\nautodir: {tmp_path}\n" + ("" if is_yaml else upcalls)
    )
    nodeset = str(environment("inventories").with_name("nodeset"))
    for group, hosts in found.groups.items():
        theirs = answer([nodeset, "-e", f"@{group}"], tmp_path, CLUSTERSHELL_CFGDIR=str(tmp_path)).split()
        assert sorted(theirs) == sorted(hosts), group
