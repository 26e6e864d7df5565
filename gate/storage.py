"""Storage: a directory that is written whole or not at all, its locks and its manifest. It knows no file's content."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import fnmatch
import glob
import hashlib
import json
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from gate.errors import GateError
from gate.words import plural

MAX_BYTES = 50_000_000  # of a manifest or a record
MANIFEST_VERSION = 1
NO_BASELINE = "none"  # instead of a baseline's directory: this is the first release
CHECKS_DIRECTORY = "checks"  # the directory below a release that holds the checks made of it


def place_to_write(path: str | Path, inputs: Iterable[str | Path] = ()) -> Path:
    """The absolute path of a file to write. Every file that gate writes where a person said goes through this door.

    It refuses symbolic links, what is there and is no file, and `inputs`: what the same run reads or writes.
    """
    try:
        target = refuse_links(path)
        if target.exists() and not target.is_file():
            kinds = {"a directory": target.is_dir(), "a pipe": target.is_fifo(), "a device": target.is_char_device()}
            found = next((kind for kind, it_is in kinds.items() if it_is), "something else")
            raise GateError(f"{path}: must be a file, got {found}; name a file")
        _refuse_inputs([target], inputs)
    except OSError as error:
        raise GateError(f"{path}: must be writable, got {error.strerror}; nothing was written") from None
    return target


def refuse_links(path: str | Path) -> Path:
    """The absolute path to write to; a symbolic link that leads elsewhere is refused.

    The content of the working directory may be hostile, so nothing below it may be a link, however it is named.
    Elsewhere the person who named the path has chosen the directories, and only the last name must be no link.
    """
    target, here = Path(os.path.abspath(path)), _identity(Path.cwd())
    below = False
    for place in (*reversed(target.parents), target):
        if place.is_symlink() and (below or place == target):
            raise GateError(f"{path}: must lead through no symbolic link, got one at {place}; name its real place")
        below = below or _identity(place) == here
    return target


def _refuse_inputs(targets: Iterable[Path], inputs: Iterable[str | Path]) -> None:
    """Refuse to write over what the run reads, by whatever name: a file, all in a directory, or those of a pattern."""
    written = {_identity(target): target for target in targets}
    for name in filter(None, map(str, inputs)):
        for read in chain.from_iterable(map(_files_of, (Path(name), *_matching(os.path.normpath(name))))):
            if target := written.get(_identity(read)):
                raise GateError(f"{target}: must be no input of this run, which {read} is; choose another place")


def _matching(pattern: str) -> Iterator[Path]:
    """What a pattern names. Below `**` an asterisk stands for folders too: `glob` would follow circles of links."""
    top, deep, _ = pattern.partition("**")
    found = map(Path, glob.iglob(pattern if not deep else os.path.dirname(top) or "."))
    if not deep:
        yield from found
        return
    for path in chain.from_iterable(map(_files_of, found)):
        if fnmatch.fnmatchcase(str(path), pattern.replace("**/", "*")):
            yield path


def _files_of(path: Path) -> Iterator[Path]:
    """The file, or all files in the directory, through links too; of a release, those that it consists of."""
    names = _names_in(path)
    yield from (path / name for name in names or [])
    if not path.is_dir():
        yield path
    seen = {_identity(path)}
    for place, folders, files in os.walk(path, followlinks=True) if names is None else ():
        yield from (Path(place, name) for name in files)
        inner = {name: _identity(Path(place, name)) for name in folders}
        folders[:] = [name for name, identity in inner.items() if identity not in seen]
        seen.update(inner.values())


def _identity(path: Path) -> tuple[int, int] | str:
    """What a file or directory is by any of its names; of one that is not there, its path."""
    try:
        found = path.stat()
    except OSError:
        return os.path.realpath(path)
    return found.st_dev, found.st_ino


def sync_directory(directory: Path) -> None:
    """Make files created or renamed in it outlast a power cut; some file systems cannot do this."""
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


def read_regular(path: str | Path, most: int, follow: bool = True) -> bytes:
    """The bytes of a file, at most one more than `most`. Pipes and devices are refused: they may block or never end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW))
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "something that is no file")
        return file.read(min(most, status.st_size) + 1)  # allocates this much memory at once


def refuse_existing(directory: str | Path, force: bool, inputs: Iterable[str | Path] = ()) -> str:
    """Refuse a place for results before any work is done; else return the digest of what `write` may replace there.

    A release is replaced only where nothing else is there, and where it is none of `inputs`, which the run reads.
    """
    target = Path(directory)
    try:
        if target.is_symlink() or (target.exists() and not target.is_dir()):
            raise GateError(f"{target}: must be a new directory, got something else; choose another --out")
        refuse_links(target)
        parent = next((path for path in target.absolute().parents if path.exists()), target)  # `/` has none
        if not (parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)):
            raise GateError(f"{target}: must be in a directory that can be written, which {parent} is not")
        if not target.exists() or not any(target.iterdir()):
            return NOTHING
        if not force:
            raise GateError(f"{target}: must not exist yet; choose another --out, or --force to replace this release")
        names = _names_in(target)
        if names is None:
            raise GateError(
                f"{target}: must be a release for --force to replace it, got a directory without a release's "
                "manifest.json; choose another --out"
            )
        held = checks_in(target)
        if held:
            raise GateError(
                f"{target}: must hold no checks for --force to replace it, got {plural(len(held), 'check')} in "
                f"{CHECKS_DIRECTORY}/; move that directory away, or choose another --out"
            )
        other = next(_others_in(target, names), None)
        if other is not None:
            raise GateError(
                f"{target}: must hold nothing but a release for --force to replace it, got {other}; move it away, or "
                "choose another --out"
            )
        _refuse_inputs((target / name for name in names), inputs)
        return _digest(target)
    except OSError as error:
        raise GateError(f"{target}: must be a directory that can be written, got {error.strerror}") from None


def checks_in(directory: Path) -> list[str]:
    """The names of the checks of a release, without directories that a run is writing or left behind."""
    try:
        names = sorted(os.listdir(directory / CHECKS_DIRECTORY))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [name for name in names if not _is_partial(name)]


def _is_partial(name: str) -> bool:
    return name.startswith(".gate-") and name.endswith(".partial")


NOTHING = "nothing"  # the digest if there is no release to replace


def _digest(directory: Path) -> str:
    """The digest of a release's manifest; it shows whether another run has written there since."""
    try:
        return hashlib.sha256(read_regular(directory / "manifest.json", MAX_BYTES)).hexdigest()
    except FileNotFoundError:
        return NOTHING


def _names_in(directory: Path) -> set[str] | None:
    """The files that a release consists of; None if `write` did not write this: others have a manifest.json too."""
    try:
        names = set(json.loads(read_regular(directory / "manifest.json", MAX_BYTES))["sha256"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return names | {"manifest.json"} if "verdict.json" in names else None


def _others_in(directory: Path, names: set[str]) -> Iterator[str]:
    """What lies in a directory besides these files: other files, links and pipes, by their paths in it."""

    def stop(error: OSError) -> None:
        raise error

    for place, folders, files in os.walk(directory, onerror=stop):
        folders[:] = [name for name in folders if not _is_partial(name)]
        for path in (Path(place, name) for name in sorted([*folders, *files])):
            name, mode = path.relative_to(directory).as_posix(), path.lstat().st_mode
            if not (stat.S_ISDIR(mode) or (stat.S_ISREG(mode) and name in names) or _is_partial(path.name)):
                yield name


def write(directory: str | Path, files: Mapping[str, bytes], force: bool, replaces: str | None = None) -> None:
    """Write the files and their manifest beside the target, then rename: the directory appears whole.

    `replaces` is what `refuse_existing` found when the run began. If another run has written there since, this run
    stops with an error.
    """
    target = Path(os.path.abspath(directory))
    try:
        refuse_links(target.parent)
        target.parent.mkdir(parents=True, exist_ok=True)
        if replaces is None:
            replaces = refuse_existing(target, force)
        with _staging(target.parent) as staging:
            for name, data in {**files, "manifest.json": manifest_of(files)}.items():
                (staging / name).parent.mkdir(parents=True, exist_ok=True)
                _write_durably(staging / name, data)
            staging.chmod(0o777 & ~_umask())
            with _locked(target.parent):
                if _digest(target) != replaces:
                    raise GateError(
                        f"{target}: must be written by one run at a time, got a release that another run has written "
                        "meanwhile; that one stays, nothing else was written"
                    )
                refuse_existing(target, force)
                for inside in _directories_of(staging, files):
                    sync_directory(inside)
                _put_in_place(staging, target)
            for parent in (target.parent, target.parent.parent):  # this run may have made them
                sync_directory(parent)
    except OSError as error:
        raise GateError(f"{target}: must be writable, got {error.strerror or error}; nothing was written") from None


def _directories_of(top: Path, names: Iterable[str]) -> list[Path]:
    """Every directory that holds one of these files, up to the top one, each once and inner directories first."""
    above = (place for name in names for place in (top / name).parents)
    return sorted({top, *(place for place in above if place.is_relative_to(top))}, reverse=True)


def manifest_of(files: Mapping[str, bytes]) -> bytes:
    """The content of `manifest.json`: the digest of every other file."""
    digests = {name: hashlib.sha256(files[name]).hexdigest() for name in sorted(files)}
    return (json.dumps({"schema_version": MANIFEST_VERSION, "sha256": digests}, indent=2) + "\n").encode()


@contextlib.contextmanager
def _staging(parent: Path) -> Iterator[Path]:
    """A new directory to write in, locked while this process lives, and gone at the end.

    A process that is killed leaves its directory behind, unlocked: the next run here removes it.
    """
    staging = parent / f".gate-{secrets.token_hex(8)}.partial"
    with contextlib.ExitStack() as lock:
        lock.callback(_remove, staging)  # before the directory is made, because a signal may come at any moment
        with _locked(parent):
            for left in parent.glob(".gate-*.partial"):
                with contextlib.suppress(OSError), _locked(left, wait=False):
                    shutil.rmtree(left, ignore_errors=True)
            staging.mkdir(mode=0o700)
            lock.enter_context(_locked(staging))
        yield staging


def _remove(staging: Path) -> None:
    """Delete it even if a signal comes in between."""
    try:
        shutil.rmtree(staging, ignore_errors=True)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise


@contextlib.contextmanager
def _locked(directory: Path, wait: bool = True) -> Iterator[None]:
    """Hold a directory's lock, which the system releases when a process dies; no file is left behind.

    Without `wait` it raises if another process holds the lock. Some network file systems lock no directories. There
    the directory of a dead process cannot be told from that of a running one, so it stays.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW if not wait else os.O_RDONLY)
    try:
        with contextlib.suppress(OSError) if wait else contextlib.nullcontext():
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(descriptor)


def write_file(path: str | Path, data: bytes, inputs: Iterable[str | Path] = ()) -> None:
    """Write one file beside its place and rename it there, so that no half of it is ever seen."""
    place = place_to_write(path, inputs)
    staging = place.parent / f".gate-{secrets.token_hex(8)}.partial"
    try:
        try:
            _write_durably(staging, data)
            staging.replace(place)
            sync_directory(place.parent)
        finally:
            staging.unlink(missing_ok=True)
    except OSError as error:
        raise GateError(f"{path}: must be writable, got {error.strerror or error}; nothing was written") from None


def _write_durably(path: Path, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _put_in_place(staging: Path, target: Path) -> None:
    """Rename onto the target. An older release there changes places with the new one in one step.

    If the file system cannot do that, the older one is set aside first and comes back whatever goes wrong.
    """
    if not target.exists() or not any(target.iterdir()):
        staging.rename(target)
        return
    if _exchanged(staging, target):
        return
    aside = Path(tempfile.mkdtemp(prefix=".gate-", suffix=".replaced", dir=target.parent))
    old = aside / "release"
    try:
        target.rename(old)
        staging.rename(target)
    except BaseException:
        _put_back(old, target)
        aside.rmdir()
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _exchanged(one: Path, other: Path) -> bool:
    """Let two directories change places at once, by Linux's renameat2; False if there is no such call."""
    import ctypes

    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if rename(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code))


def _put_back(old: Path, target: Path) -> None:
    """Put the older release back; if that fails too, nothing is deleted and the message says where it is."""
    try:
        if old.exists():
            old.rename(target)
    except OSError as error:
        raise GateError(
            f"{target}: must be writable, got {error.strerror}; the release that was here is in {old}"
        ) from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
