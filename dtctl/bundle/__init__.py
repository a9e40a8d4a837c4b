"""The training code as it is pushed: which files belong, what they hold, and how hosts get what they lack."""

from dtctl.bundle.manifest import Bundle, FileEntry, LeftOut, Manifest
from dtctl.bundle.scanning import scan
from dtctl.bundle.sender import Sender

__all__ = ["Bundle", "FileEntry", "LeftOut", "Manifest", "Sender", "scan"]
