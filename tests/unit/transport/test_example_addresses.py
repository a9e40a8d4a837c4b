"""Addresses that stand in files of `dtctl init`, until somebody writes those of his machines there."""

from __future__ import annotations

import errno

import pytest

from dtctl.transport.ssh.errors import Destination, cannot_connect


@pytest.mark.parametrize("error", [TimeoutError(), OSError(errno.EHOSTUNREACH, "No route to host")])
@pytest.mark.parametrize(("address", "is_example"), [("192.0.2.11", True), ("192.0.3.11", False)])
def test_an_address_that_no_machine_has_is_told_as_an_examples(error: OSError, address: str, is_example: bool) -> None:
    hint = cannot_connect(Destination("node-1", address, 22, "node-1"), error, 10.0).hint
    assert hint.startswith("that is an example's address: write your machines'") is is_example
