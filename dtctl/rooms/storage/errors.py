"""Errors of storage URLs."""

from __future__ import annotations

from dtctl.errors import DtctlError


class StorageError(DtctlError):
    """A storage URL cannot be listed, read or written from here."""


class Missing(StorageError):
    """The object does not exist."""


class InvalidAnswer(StorageError):
    """The server's answer is invalid."""
