"""The scores: files in, raw scores of benign (or malicious) rows out as read-only float64; counted, never judged."""

from gate.scores.alike import row_keys
from gate.scores.columns import number_alike, shared_names, text_buffer
from gate.scores.describe import days_of, describe
from gate.scores.files import digest_contents, find_copy
from gate.scores.formats import write_parquet
from gate.scores.labels import Kind
from gate.scores.reading import columns_for, from_object, kind_of, read, reading_sample
from gate.scores.sample import Reached, Scores, count_by_part
from gate.scores.split import match, split

__all__ = [
    "Kind",
    "Reached",
    "Scores",
    "columns_for",
    "count_by_part",
    "days_of",
    "describe",
    "digest_contents",
    "find_copy",
    "from_object",
    "kind_of",
    "match",
    "number_alike",
    "read",
    "reading_sample",
    "row_keys",
    "shared_names",
    "split",
    "text_buffer",
    "write_parquet",
]
