"""Modules that a Python lacks: how to install them, and which of them must never be requested from pip."""

from __future__ import annotations

import sys
from collections.abc import Mapping

PACKAGES = {
    "sklearn": "scikit-learn",
    "yaml": "PyYAML",
    "PIL": "pillow",
    "cv2": "opencv-python",
    "absl": "absl-py",
    "google": "protobuf",
}
"""Modules whose package on PyPI has another name."""

REMOVED = {
    **dict.fromkeys(("asynchat", "asyncore", "distutils", "imp", "smtpd"), "3.12"),
    **dict.fromkeys(("aifc", "audioop", "cgi", "cgitb", "chunk", "crypt", "imghdr", "lib2to3", "mailcap"), "3.13"),
    **dict.fromkeys(("msilib", "nis", "nntplib", "ossaudiodev", "pipes", "sndhdr", "spwd", "sunau"), "3.13"),
    **dict.fromkeys(("telnetlib", "uu", "xdrlib"), "3.13"),
    "binhex": "3.11",
    "formatter": "3.10",
    "parser": "3.10",
    "symbol": "3.10",
    "macpath": "3.8",
}
"""Modules that were removed from the standard library, and the version of Python that removed them (docs.python.org,
What's New).
"""

LIBRARIES = {
    "_ctypes": "libffi-dev",
    "_ssl": "libssl-dev",
    "_hashlib": "libssl-dev",
    "_sqlite3": "libsqlite3-dev",
    "_bz2": "libbz2-dev",
    "_lzma": "liblzma-dev",
    "_curses": "libncurses-dev",
    "_tkinter": "tk-dev",
    "readline": "libreadline-dev",
    "zlib": "zlib1g-dev",
}
"""Modules in C, and the Debian package without which Python is built without them."""

SEPARATE = {"tkinter": "python3-tk", "ensurepip": "python3-venv", "venv": "python3-venv", "idlelib": "idle3"}
"""Modules that Debian leaves out of its Python, and the package that has them."""

INTERPRETER = ("encodings", "codecs", "io", "abc", "site", "os", "_bootlocale")
"""Modules without which a Python does not start."""


def is_standard(module: str) -> bool:
    """Whether any version of Python has the module in its standard library. Nobody vouches for such names on PyPI."""
    return module in sys.stdlib_module_names or module in REMOVED


def why_missing(module: str) -> Mapping[str, str]:
    """The reason why a Python lacks a module of the standard library, as the one known field of its remedy."""
    if module in INTERPRETER:
        return {"interpreter": module}
    if module in LIBRARIES:
        return {"library": LIBRARIES[module]}
    if module in SEPARATE:
        return {"separate": SEPARATE[module]}
    return {"removed": REMOVED[module]} if module in REMOVED else {"broken": module}
