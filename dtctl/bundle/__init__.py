"""The training code as it is pushed: which files belong, what they hold, and how hosts get what they lack."""

from dtctl.bundle.manifest import Bundle, FileEntry, Manifest
from dtctl.bundle.scanning import scan
from dtctl.bundle.sender import Sender

__all__ = ["Bundle", "FileEntry", "Manifest", "Sender", "scan"]
