"""What a storage URL is: a place that trainers open themselves. It is no path, and nobody else makes or removes it."""

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, List, Sequence

WRITTEN = ("gs", "s3", "hdfs", "webhdfs", "viewfs", "abfs", "abfss", "az")
"""Schemes that trainers write to and read from."""

READ = (*WRITTEN, "http", "https")
"""Those that they only read from as well."""

ANY = r"[A-Za-z][A-Za-z0-9+.-]*://"
"""The beginning of a URL of whatever scheme."""

_NO_HOST = ("hdfs", "viewfs")
"""Hadoop's own configuration names their server."""


def pattern(schemes: "Sequence[str]") -> str:
    """Of URLs with these schemes. A password or a query may be a secret, no variable is filled in, and `::` names
    another file system to fsspec.
    """
    bare = "|".join(one for one in schemes if one in _NO_HOST)
    named = r"(?:%s)://(?![/@])" % "|".join(schemes)
    start = r"(?:%s|(?:%s):///)" % (named, bare) if bare else named
    return start + r"(?![^/]*:[^/]*@)(?![^\s]*(?:::|\$[A-Za-z_{]))[^\s?#\x00-\x1f\x7f]+"


def is_storage_url(text: str) -> bool:
    return re.match(ANY, text) is not None and re.match(r"(?:%s)\Z" % pattern(READ), text) is not None


def paths_of(places: "Iterable[str]") -> "List[str]":
    """Those that are paths on a host."""
    return [place for place in places if not is_storage_url(place)]


def urls_of(places: "Iterable[str]") -> "List[str]":
    return [place for place in places if is_storage_url(place)]
