"""The command that takes a calibrator out of Python: `gate export`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gate.cli.options import given
from gate.cli.streams import log, show, working

if TYPE_CHECKING:
    from gate.calibration.export import Exported


@click.command()
@click.argument("directory", type=given, metavar="RELEASE_DIR")
@click.option("--to", "format_", type=click.Choice(["onnx", "sql"]), required=True, help="An ONNX graph or SQL.")
@click.option(
    "-o",
    "--output",
    type=given,
    metavar="FILE",
    help="Write here; - is stdout, for sql  [default: calibrator.onnx or thresholds.sql, in the working directory]",
)
def export(directory: str, format_: str, output: str | None) -> None:
    """The calibrator for places without Python, from calibrator.json and never from the pickle.

    onnx is the whole calibrator as a graph of float64 operations, bit-equal to calibrator.joblib; it needs the extra
    fpr-gate[onnx]. sql is a CASE expression: which anchor of the contract a raw score reaches. Both name the release
    and its digests, and the same release gives the same bytes. A file that is there is replaced.

    \b
    Example:
      gate export releases/v2.4.0 --to onnx
      gate export releases/v2.4.0 --to sql -o -
    """
    if format_ == "onnx" and output == "-":
        raise click.UsageError("-o must name a file where --to is onnx: a graph is no text")
    from gate.calibration.export import FILES
    from gate.storage import write_file

    exported, (name, render) = _exported(directory), FILES[format_]
    with working(f"exporting {exported.release}"):
        content = render(exported)
    if output == "-":
        show(content.decode(), format_)
    else:
        write_file(output or name, content, [directory])
        log(f"wrote {output or name}: {len(content):,} bytes, {exported.release} ({exported.outcome})")
    if exported.outcome != "pass":
        log(f"{exported.release} did not pass the gate ({exported.outcome}); the export says so too")


def _exported(directory: str) -> Exported:
    """Read what a release says of its calibrator; export nothing if the verdict does not follow from the counts."""
    from gate.calibration.export import Exported
    from gate.inspection.judgement import read_judged
    from gate.record import read_calibrator

    stored = read_judged(directory)
    read_calibrator(stored)  # it says what is wrong with the calibrator, and where
    text, record = (stored.calibrator_json or b"").decode(), stored.record
    return Exported(record.release, record.outcome, record.calibrator.sha256, text)
