"""Find data sets on disk, and download those that are not there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ..errors import CurvaeError
from .messages import listing, one_line

__all__ = ["fetch", "places"]


def places(name: str) -> list[Path]:
    """Folders in which to look for a data set: under CURVAE_DATA, then in the user's cache."""
    data, cache = os.environ.get("CURVAE_DATA"), os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return [*([Path(data, name)] if data else []), Path(cache, "curvae", name)]


def fetch(name: str, address: str, checksums: Mapping[str, str], what: str | None = None) -> Path:
    """Download the files of a data set into the user's cache, where `places` finds them.

    Arguments:
        name: name of the folder.
        address: URL to which the names of the files are appended.
        checksums: SHA-256 of each file, by name.
        what: name of the data set in messages; by default that of the folder.
    """
    what = what or name
    folder = places(name)[-1]
    try:
        import pooch
    except ImportError as error:
        raise CurvaeError(
            f"{what} is neither in CURVAE_DATA nor in {folder.parent}; pip install 'curvae[data]' to download it"
        ) from error
    try:
        for file, checksum in checksums.items():
            pooch.retrieve(address + file, known_hash=f"sha256:{checksum}", fname=file, path=folder)
    except (OSError, ValueError) as error:
        raise CurvaeError(
            f"{what} could not be downloaded from {address} ({one_line(error)}); put {listing(checksums)} into a "
            f"folder {name!r} and set CURVAE_DATA to the folder that holds it"
        ) from error
    return folder
