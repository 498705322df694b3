"""What may go wrong between people and brokers that ask who they are, for commands to tell."""

from __future__ import annotations


class NotPermittedError(ConnectionError):
    """A broker refuses to answer whoever asks; the message says why."""


class SecurityFileError(ValueError):
    """A file of section `[security]` cannot be used; the message names it and what is wrong."""


class IdentityFileError(ValueError):
    """An identity file that cannot be used; the message names the file and what was expected."""
