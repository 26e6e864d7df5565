"""Where files are put: through no link that a checkout may hold, and for good. It knows nothing of what is in them."""

from __future__ import annotations

import os
from pathlib import Path

from gate.errors import GateError


def refuse_links(path: str | Path) -> Path:
    """The absolute path of what shall be written, where no symbolic link leads elsewhere.

    What the working directory holds may be hostile, so nothing below it may be a link. Elsewhere the person who named
    the path has chosen the directories, and only its last name must be none.
    """
    target, here = Path(os.path.abspath(path)), Path.cwd()
    place = here if target.is_relative_to(here) else target.parent
    for name in target.relative_to(place).parts:
        place /= name
        if place.is_symlink():
            raise GateError(f"{path}: must lead through no symbolic link, got one at {place}; name its real place")
    return target


def sync_directory(directory: Path) -> None:
    """Make what was created or renamed in it outlast a power cut; some file systems know no such thing."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        return
    finally:
        os.close(descriptor)
