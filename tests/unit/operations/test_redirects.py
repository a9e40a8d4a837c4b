"""Where a storage server may send dtctl."""

from __future__ import annotations

import pytest

from dtctl.rooms.storage.redirects import VARIABLE, RedirectRefused, Server

OPEN = "/webhdfs/v1/digits?op=OPEN&offset=0"


def refusal(server: str, to: str, address: str = "", own: str = "10.0.0.1") -> str:
    """Why a redirect is refused, empty if it is not; `address`: what the name in it leads to."""
    known = Server(f"http://{server}/webhdfs/v1" if "://" not in server else server)
    try:
        known.check_url(f"http://{server}{OPEN}" if "://" not in server else f"{server}{OPEN}")
        known.check_address(server.rpartition("/")[2].partition(":")[0], own)
        known.check_url(to)
        known.check_address(to.split("/")[2].rpartition(":")[0] or to.split("/")[2], address or own)
    except RedirectRefused as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("server", "to", "address", "own"),
    [
        ("nn.corp.example:9870", "http://nn.corp.example:9864" + OPEN, "10.0.0.1", "10.0.0.1"),
        ("nn.corp.example:9870", "http://DN7.corp.example.:9864" + OPEN, "10.0.9.7", "10.0.0.1"),
        ("nn.corp.example:9870", "http://dn7.corp.example:9864" + OPEN, "192.168.1.1", "10.0.0.1"),
        ("nn:9870", "http://dn-7:9864" + OPEN, "172.18.0.3", "172.18.0.2"),
        ("10.0.0.1:9870", "http://10.0.3.4:9864" + OPEN, "10.0.3.4", "10.0.0.1"),
        ("10.0.0.1:9870", "http://dn7.corp.example:9864" + OPEN, "10.0.3.4", "10.0.0.1"),
        ("nn.corp.example:9870", "http://10.0.3.4:9864" + OPEN, "10.0.3.4", "10.0.0.1"),
        ("localhost:9870", "http://localhost:9864" + OPEN, "127.0.0.1", "127.0.0.1"),
        ("nn.example.org:9870", "https://dn.example.org:9865" + OPEN, "93.184.216.35", "93.184.216.34"),
    ],
)
def test_redirects_to_data_nodes_of_the_same_site_are_followed(server: str, to: str, address: str, own: str) -> None:
    assert refusal(server, to, address, own) == ""


@pytest.mark.parametrize(
    ("server", "to", "address", "own", "why"),
    [
        ("nn.corp.example", "http://nn.corp.example:631/admin?op=OPEN", "", "10.0.0.1", "no operation of WebHDFS"),
        ("nn.corp.example", "http://dn.corp.example/webhdfs/v1/x", "", "10.0.0.1", "no operation of WebHDFS"),
        ("nn.corp.example", "http://dn.corp.example/webhdfs/v1/%2e%2e/x?op=OPEN", "", "10.0.0.1", "no operation"),
        ("https://nn.corp.example", "http://nn.corp.example" + OPEN, "", "10.0.0.1", "without encryption"),
        ("nn.corp.example", "http://dn.other.example" + OPEN, "", "10.0.0.1", "another domain"),
        ("nn.corp.example", "http://localhost" + OPEN, "127.0.0.1", "10.0.0.1", "another domain"),
        ("nn.corp.example", "http://dn.corp.example" + OPEN, "127.0.0.1", "10.0.0.1", "a loopback address"),
        ("nn.corp.example", "http://dn.corp.example" + OPEN, "::ffff:127.0.0.1", "10.0.0.1", "a loopback address"),
        ("nn.corp.example", "http://dn.corp.example" + OPEN, "169.254.169.254", "10.0.0.1", "credentials"),
        ("nn.corp.example", "http://dn.corp.example" + OPEN, "fd00:ec2::254", "fd00:ec2::1", "credentials"),
        ("nn.evil.example", "http://dn.evil.example" + OPEN, "10.0.0.7", "93.184.216.34", "a private address"),
        ("nn.evil.example", "http://dn.evil.example" + OPEN, "fe80::1", "93.184.216.34", "a link-local address"),
        ("10.0.0.1", "http://10.7.0.1" + OPEN, "10.7.0.1", "10.0.0.1", "not in the network of 10.0.0.1"),
        ("10.0.0.1", "http://169.254.169.254" + OPEN, "169.254.169.254", "10.0.0.1", "credentials"),
        ("10.0.0.1", "http://2852039166" + OPEN, "169.254.169.254", "10.0.0.1", "2852039166"),
        ("10.0.0.1", "http://[::1]" + OPEN, "::1", "10.0.0.1", "a loopback address"),
        ("nn", "http://dn.evil.example" + OPEN, "10.0.0.7", "10.0.0.1", "another domain"),
    ],
)
def test_redirects_elsewhere_are_refused_and_named(server: str, to: str, address: str, own: str, why: str) -> None:
    assert why in refusal(server, to, address, own)


def test_a_host_that_the_user_lists_may_be_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    to = "http://dn7.other.example" + OPEN
    assert f"export {VARIABLE}=dn7.other.example" in refusal("nn.corp.example", to)
    monkeypatch.setenv(VARIABLE, "here.example, *.other.example")
    assert refusal("nn.corp.example", to, "192.168.1.1") == ""
    assert refusal("nn.corp.example", "http://dn7.other.example/admin?op=OPEN") != "", "but for nothing else"


def test_credentials_are_for_the_server_alone() -> None:
    server = Server("https://nn.corp.example:9871/webhdfs/v1")
    assert server.is_named_by("https://NN.corp.example:9871/webhdfs/v1/x?op=OPEN")
    for other in ("https://nn.corp.example:9865/x", "http://nn.corp.example:9871/x", "https://dn.corp.example:9871/x"):
        assert not server.is_named_by(other)
