"""When gRPC would use a proxy between tasks."""

from __future__ import annotations

import pytest

from dtctl.operations.checks.network.exposure import through

NAMES = ("gpu-1.lab", "10.0.0.2")


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, None),
        ({"HTTP_PROXY": "http://p:1"}, None),  # capitals are not for gRPC
        ({"http_proxy": ""}, None),
        ({"http_proxy": "http://p:1"}, ("http_proxy", NAMES)),
        ({"http_proxy": "http://p:1", "grpc_proxy": "http://q:1"}, ("grpc_proxy", NAMES)),
        ({"https_proxy": "http://p:1", "no_proxy": "gpu-1.lab"}, ("https_proxy", ("10.0.0.2",))),
        ({"http_proxy": "http://p:1", "no_proxy": ".lab, 10.0.0.0/24"}, None),
        (
            {"http_proxy": "http://p:1", "no_proxy": ".lab,10.0.0.2", "no_grpc_proxy": "elsewhere"},
            ("http_proxy", NAMES),
        ),
        ({"http_proxy": "http://p:1", "no_grpc_proxy": "gpu-1.lab,10.0.0.2"}, None),
    ],
)
def test_the_variables_that_grpc_heeds_and_what_they_exempt(
    env: dict[str, str], expected: tuple[str, tuple[str, ...]] | None
) -> None:
    assert through(env, NAMES) == expected
