"""JSON web tokens in files, where another process renews them. Blocking."""

from __future__ import annotations

import re

from aioproducer.bare_errors import raises_bare
from aioproducer.errors import AuthenticationError

_JWT = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+", re.ASCII)


@raises_bare(AuthenticationError)
def read_jwt(path: str, where: str) -> str:
    """The token in a file.

    Args:
        where: the config that names the file, for messages.
    Raises:
        AuthenticationError: the file can't be read, or contains no signed JSON web token.
    """
    text = read_text(path, where).strip()
    if not _JWT.fullmatch(text):
        raise AuthenticationError(f"{where}: {path} holds no JSON web token (header.payload.signature)")
    return text


def read_text(path: str, where: str) -> str:
    """The text of a file.

    Raises:
        AuthenticationError: it can't be read.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise AuthenticationError(f"{where}: {path} can't be read: {error.strerror or error}") from error
    except ValueError:
        raise AuthenticationError(f"{where}: {path} is not text") from None
