"""What goes wrong at a storage URL."""

from __future__ import annotations

from dtctl.errors import DtctlError


class StorageError(DtctlError):
    """What lies at a storage URL cannot be listed, read or written from here."""


class Missing(StorageError):
    """There is no such object."""


class InvalidAnswer(StorageError):
    """The server's answer does not hold what it has to."""
