"""Which answers of a storage may be others in a moment, by the exceptions of each library."""

from __future__ import annotations

import aiohttp
import pytest
import requests
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ServiceRequestError
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError
from gcsfs.retry import HttpError
from s3fs.errors import translate_boto_error

from dtctl.operations.storage import is_passing


def of_boto(code: str, status: int) -> Exception:
    answer = {"Error": {"Code": code, "Message": ""}, "ResponseMetadata": {"HTTPStatusCode": status}}
    error: Exception = translate_boto_error(ClientError(answer, "GetObject"))
    return error


def of_azure(kind: type[HttpResponseError], status: int) -> Exception:
    error = kind("x")
    error.status_code = status
    return error


def of_requests(status: int) -> Exception:
    response = requests.Response()
    response.status_code = status
    return requests.HTTPError("x", response=response)


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (HttpError({"code": 503, "message": ""}), True),
        (HttpError({"code": 429, "message": ""}), True),
        (HttpError({"code": 401, "message": "Invalid Credentials"}), False),
        (of_boto("SlowDown", 503), True),
        (of_boto("InternalError", 500), True),
        (of_boto("ExpiredToken", 400), False),
        (of_boto("AccessDenied", 403), False),
        (EndpointConnectionError(endpoint_url="http://x"), True),
        (NoCredentialsError(), False),
        (of_azure(HttpResponseError, 503), True),
        (of_azure(ClientAuthenticationError, 401), False),
        (ServiceRequestError("no route"), True),
        (of_requests(503), True),
        (of_requests(403), False),
        (requests.ConnectionError(), True),
        (aiohttp.ServerDisconnectedError(), True),
        (TimeoutError(), True),
        (ConnectionResetError(), True),
        (PermissionError("Token has expired"), False),
        (FileNotFoundError("x"), False),
        (ValueError("x"), False),
    ],
    ids=repr,
)
def test_what_an_overloaded_server_refuses_may_pass_and_no_other_refusal(error: Exception, passes: bool) -> None:
    assert is_passing(error) == passes
