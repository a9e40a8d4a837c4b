"""`make fleet N=4`: a fleet to play with, until Enter or Ctrl-C.

Its host keys are not trusted yet, so that `dtctl trust` has something to do; `--trusted` pins them.
"""

from __future__ import annotations

import argparse
import signal
import sys
from typing import NoReturn

from tests.hosts.fleet import Fleet, missing


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.hosts.play", description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=4, metavar="N", help="how many hosts (default: 4)")
    parser.add_argument("--trusted", action="store_true", help="with their keys in the fleet's known_hosts file")
    options = parser.parse_args()
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, _interrupt)
    if reason := missing():
        sys.exit(f"no fleet can be made here: {reason}")
    try:
        with Fleet(options.count, trusted=options.trusted) as fleet:
            print(f"{options.count} hosts are up:")
            for host in fleet.hosts:
                print(f"  {host.name:<8} {host.user}@{host.address}:{host.port}   home {host.home}")
            print(f"\nssh_config   {fleet.ssh_config}\nknown_hosts  {fleet.known_hosts}\nshared       {fleet.shared}\n")
            print(f"For a cluster.yaml:\n\n{fleet.cluster_yaml()}")
            print(
                f"Try: ssh -F {fleet.ssh_config} {fleet.hosts[0].name}\nEnter or Ctrl-C removes everything.", flush=True
            )
            sys.stdin.readline()
    except KeyboardInterrupt:
        print("\nremoved")


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
