"""Modules that a Python lacks: what installs them, and which of them pip must never be asked for."""

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
"""Modules that the standard library had, and the version of Python that removed them (docs.python.org, What's New)."""

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
"""Modules in C, and the package of Debian without which a Python is built without them."""

SEPARATE = {"tkinter": "python3-tk", "ensurepip": "python3-venv", "venv": "python3-venv", "idlelib": "idle3"}
"""Modules that Debian leaves out of its Python, and the package that has them."""

INTERPRETER = ("encodings", "codecs", "io", "abc", "site", "os", "_bootlocale")
"""Modules without which a Python does not start."""


def is_standard(module: str) -> bool:
    """Whether the standard library of any version of Python has it. Nobody vouches for such names on PyPI."""
    return module in sys.stdlib_module_names or module in REMOVED


def why_missing(module: str) -> Mapping[str, str]:
    """Why a Python lacks a module of the standard library, as the one field of its remedy that is known."""
    if module in INTERPRETER:
        return {"interpreter": module}
    if module in LIBRARIES:
        return {"library": LIBRARIES[module]}
    if module in SEPARATE:
        return {"separate": SEPARATE[module]}
    return {"removed": REMOVED[module]} if module in REMOVED else {"broken": module}
