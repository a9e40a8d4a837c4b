"""What can be wrong with logins over SSH: rows of the table of `check`."""

from __future__ import annotations

from dtctl.operations.diagnosis.signature import Level, Signature

_START_UP = "the login shell, started as sshd starts it for a command"

NOISE = Signature(
    "noisy_start_up",
    Level.NOTE,
    "start-up files of the login shell print something",
    _START_UP,
    "the start-up files of {shell} on {hosts} print to commands that nobody looks at: {said}. dtctl passes it over; "
    "scp, rsync and git break of it",
    (
        "at the top of ~/.bashrc there: case $- in *i*) ;; *) return ;; esac    so that only a person's shell reads "
        "the rest",
        "dtctl exec {at} -- head -20 .bashrc    shows how it begins",
    ),
)
SLOW = Signature(
    "slow_start_up",
    Level.SLOWS,
    "start-up files of the login shell take long",
    _START_UP,
    "the start-up files of {shell} on {hosts} take {start_up} s, at every command of dtctl",
    (
        "at the top of ~/.bashrc there: case $- in *i*) ;; *) return ;; esac    so that only a person's shell reads "
        "the rest",
        "what activates environments (conda, modules) belongs behind that line, or into trainer.setup",
    ),
)
BROKEN = Signature(
    "start_up_fails",
    Level.SLOWS,
    "the login shell does not run a command that does nothing",
    _START_UP,
    "{shell} on {hosts} does not run the command `true` as it should: {said}",
    ("dtctl ssh {host}    shows what a login prints; the cause is in its start-up files, as a rule",),
)
SLOW_LOGIN = Signature(
    "slow_login",
    Level.SLOWS,
    "a login takes far longer than those of the other hosts",
    "the time until each host has greeted",
    "a login on {hosts} takes {took} s, where the others take {usual} s",
    (
        "UseDNS no in /etc/ssh/sshd_config there, if it waits for a name server",
        "dtctl exec {at} -- uptime    shows whether the host is busy",
    ),
)
MANY_LOGINS = Signature(
    "max_startups",
    Level.SLOWS,
    "more hosts of the inventory are one machine than its sshd takes logins at once",
    "MaxStartups of each sshd, and which hosts are one machine",
    "{hosts} are one machine, on which dtctl logs in up to {logins} times at once, and its sshd refuses logins by "
    "chance from {limit} unfinished ones on (MaxStartups {said})",
    ("MaxStartups {wanted} in /etc/ssh/sshd_config there, then: sudo systemctl reload ssh",),
)

ROWS = (NOISE, SLOW, BROKEN, SLOW_LOGIN, MANY_LOGINS)
