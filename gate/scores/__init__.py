"""The scores: files in, raw scores of benign (or malicious) rows out as read-only float64; counted, never judged."""

from gate.scores.alike import row_keys
from gate.scores.columns import number_alike, shared_names, text_buffer
from gate.scores.files import find_copy
from gate.scores.formats import write_parquet
from gate.scores.labels import Kind
from gate.scores.reading import from_object, read, reading_sample
from gate.scores.sample import Reached, Scores, Source, count_by_part
from gate.scores.split import Split, match, split

__all__ = [
    "Kind",
    "Reached",
    "Scores",
    "Source",
    "Split",
    "count_by_part",
    "find_copy",
    "from_object",
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
