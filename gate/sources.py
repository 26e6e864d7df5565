"""Facts of a sample without its rows: where they came from, how many, what they were taken for, digests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SerializerFunctionWrapHandler, model_serializer

from gate.stored import MOST_ROWS, Count, Section

MAX_LISTED_FILES = 100
MAX_LABELS = 10
MAX_UNREAD = 100


def storable(path: str) -> str:
    """A path as valid UTF-8; file names are bytes, which may be no text at all."""
    return path.encode(errors="backslashreplace").decode()


PathText = Annotated[str, BeforeValidator(lambda value: storable(value) if isinstance(value, str) else value)]


class Source(Section):
    """One argument as it was given, with the rows that it held."""

    path: PathText
    rows: Count
    benign: Count


class FileRows(Section):
    """One file: `sha256` is that of its bytes; null for an object in memory and for rows on stdin."""

    path: PathText
    rows: Count
    sha256: str | None = None


class Files(Section):
    """The files with rows: how many, the first, and the digest of a line of JSON each, `[path, rows, sha256]`."""

    count: Count
    sha256: str
    first: tuple[FileRows, ...] = Field(max_length=MAX_LISTED_FILES)


class LabelCount(Section):
    """One label of the label column."""

    label: str
    rows: Count
    taken_for: Literal["benign", "malicious"]


class Labels(Section):
    """How many distinct labels there are, and the first of them: the benign ones, then those of most rows."""

    distinct: Count
    first: tuple[LabelCount, ...] = Field(max_length=MAX_LABELS)


class Split(Section):
    """How one sample was divided, exactly enough to do it again on the same rows in the same order.

    `by` says what was kept: whole groups, each segment's share, the order of time; `cut` is the first time held out.
    """

    fraction: float
    seed: int
    by: str
    cut: str | None = None


class SampleFacts(Section):
    """Where the rows of a sample came from, and what they were taken for.

    sha256            of the scores with their counts
    rows_sha256       of the sorted ids, where the policy names a column of them
    groups            how many there are, where it names a column of them; the largest has `largest_group` rows
    oldest, newest    the days of the rows, where they have times
    unread            the first of the columns that no role names
    unscored          rows of the kind that this detector has not scored, where several score them
    """

    sources: tuple[Source, ...]
    sha256: str
    n: Annotated[int, Field(ge=2, le=MOST_ROWS)]
    files: Files | None = None
    labels: Labels | None = None
    unread: tuple[str, ...] = Field(default=(), max_length=MAX_UNREAD)
    rows_sha256: str | None = None
    groups: Count | None = None
    largest_group: Count | None = None
    oldest: str | None = None
    newest: str | None = None
    unscored: Count = 0

    @model_serializer(mode="wrap")
    def _without_zero(self, write: SerializerFunctionWrapHandler):  # type: ignore[no-untyped-def]  # noqa: ANN202
        content: dict[str, Any] = write(self)
        return content if self.unscored else {key: value for key, value in content.items() if key != "unscored"}

    @property
    def benign(self) -> int:
        """The benign rows that were read, with repeated rows."""
        return sum(source.benign for source in self.sources)

    @property
    def rows(self) -> int:
        return sum(source.rows for source in self.sources)


def digest_files(files: Iterable[FileRows]) -> str:
    lines = (json.dumps([file.path, file.rows, file.sha256], ensure_ascii=False) + "\n" for file in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()
