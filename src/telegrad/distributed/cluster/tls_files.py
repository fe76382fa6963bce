"""A cluster's certificates as bytes, for an engine that carries them to its workers.

Whoever has the files of the authority may mint for more workers; each worker gets only its own.
"""

import datetime
import os
import tempfile
from pathlib import Path

from telegrad.errors import UsageError
from telegrad.rpc.security.tls import Credentials

__all__ = ["Files", "credentials_from", "mint_files"]

Files = dict[str, bytes]
_AUTHORITY = "authority"


def mint_files(name: str, authority: Files) -> tuple[Files, Files]:
    """Return a worker's files and the authority's, which is made if there is none yet."""
    try:
        from telegrad.rpc.security.certificates import mint
    except ImportError as error:
        raise UsageError(
            "workers on several machines speak TLS, which needs the package cryptography: "
            "pip install 'telegrad[tls]' on each"
        ) from error
    with tempfile.TemporaryDirectory(prefix="telegrad-mint-") as directory:
        home = Path(directory, _AUTHORITY)
        if authority:
            _write(home, authority)
        (made,) = mint(Path(directory), [name], now=datetime.datetime.now(datetime.UTC))
        return _read(made), _read(home)


def credentials_from(files: Files) -> Credentials:
    """Return a worker's certificate, by its files."""
    with tempfile.TemporaryDirectory(prefix="telegrad-tls-") as directory:
        own = Path(directory, "own")
        _write(own, files)
        return Credentials(own)


def _read(directory: Path) -> Files:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def _write(directory: Path, files: Files) -> None:
    directory.mkdir(mode=0o700)
    for name, content in files.items():
        descriptor = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:
            file.write(content)
