"""What `up`, `push` and `plan` say of files that look like secrets, and what really travels."""

from __future__ import annotations

import json

from tests.desk import Desk

LINE = "not pushed: .env, keys/id_rsa [id_rsa*] (a line such as !.env in .dtctlignore pushes one)"


def with_secrets(home: Desk) -> None:
    home.write_cluster()
    (home.project / ".env").write_text("API_KEY=very-secret\n")
    (home.project / "keys").mkdir()
    (home.project / "keys" / "id_rsa").write_text("very-secret\n")


def pushed(home: Desk) -> list[str]:
    files = [path for path in (home.home / ".dtctl").glob("bundles/*/tree/**/*") if path.is_file()]
    return [path.name for path in files if b"very-secret" in path.read_bytes()]


def test_secrets_stay_at_home_and_every_command_says_so(home: Desk) -> None:
    with_secrets(home)
    for words in (["plan"], ["up", "--local", "--dry-run"], ["push", "--local"], ["up", "--local"]):
        assert LINE in home.run(*words).stderr.splitlines()
    assert pushed(home) == []
    home.dtctl("stop")
    told = json.loads(home.run("plan", "-o", "json").stdout)
    assert told["notPushed"] == [".env", "keys/id_rsa"]


def test_a_word_in_the_dtctlignore_sends_what_it_names(home: Desk) -> None:
    with_secrets(home)
    (home.project / ".dtctlignore").write_text("!.env\n")
    assert (
        "not pushed: keys/id_rsa [id_rsa*] (a line such as !keys/id_rsa in .dtctlignore pushes one)"
        in home.run("push", "--local").stderr
    )
    assert pushed(home) == [".env"]


def test_an_env_file_that_others_can_read_is_warned_of_with_the_command_that_helps(home: Desk) -> None:
    file = home.write_cluster()
    file.write_text(
        file.read_text().replace("  dialect: flags", "  dialect: flags\n  env_file: prod.txt\n  secrets: [API_KEY]")
    )
    (home.project / "prod.txt").write_text("API_KEY=very-secret\n")
    (home.project / "prod.txt").chmod(0o644)
    said = home.run("up", "--local").stderr
    assert "prod.txt can be read by other users (mode 0644)" in said
    assert f"chmod 600 {home.project}/prod.txt" in said
    assert pushed(home) == []


def test_a_run_on_this_machine_that_cannot_be_remembered_is_not_begun(home: Desk) -> None:
    home.write_cluster()
    (home.home / ".local").mkdir()
    (home.home / ".local" / "state").write_text("a file where the directory should be")
    done = home.run("up", "--local")
    assert (done.returncode, "Traceback" in done.stderr) == (5, False)
    assert "cannot be remembered" in done.stderr
    assert home.processes() == {}
    assert not (home.home / ".dtctl").exists(), "no host has heard of it"


def test_a_state_directory_that_others_may_write_to_stops_every_command(home: Desk) -> None:
    home.write_cluster()
    state = home.home / ".local" / "state" / "dtctl"
    state.mkdir(parents=True)
    state.chmod(0o777)
    for words in (["up", "--local"], ["status"], ["logs"], ["stop"], ["down", "--yes"]):
        done = home.run(*words)
        assert done.returncode == 5
        assert f"chmod 700 {state}" in done.stderr
    assert not (home.home / ".dtctl").exists()


def test_a_home_directory_is_no_code(home: Desk) -> None:
    text = home.write_cluster().read_text()
    (home.home / "cluster.yaml").write_text(text)
    for words in (["validate"], ["plan"], ["push"], ["up", "--local"]):
        done = home.run(*words, cwd=home.home)
        assert (done.returncode, "a home directory" in done.stderr) == (3, True)
