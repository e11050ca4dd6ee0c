"""The EUGkM job, from the command line to the written result."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from datetime import datetime, timezone

from dpkm_spark.errors import DPKMeansError, OutputError
from dpkm_spark.job import exits
from dpkm_spark.job.options import parse_options
from dpkm_spark.job.progress import Progress
from dpkm_spark.job.request import Request, make_request
from dpkm_spark.job.show import plan_text, result_text

JOB = "eugkm"
ABOUT = "Private k-means clusters of a table, by a noisy grid (EUGkM)."
EXAMPLE = """\
examples:
  ./spark-submit.sh jobs/eugkm.py
      cluster the embedded sample: k = 15, epsilon = 1
  ./spark-submit.sh jobs/eugkm.py --input points.parquet --columns x,y \\
      --bounds=-1:1 --k 15 --epsilon 1 --output out/
      cluster your own points; bounds are public, never read off the data
  spark-submit --master yarn jobs/eugkm.py --config nightly.toml
      the same options as TOML; flags win over the file
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments after the script's name; by default the process's own.

    Returns
    -------
    int
        Exit code, as `dpkm_spark.job.exits` lists them.
    """
    try:
        options = parse_options(JOB, ABOUT, EXAMPLE, sys.argv[1:] if argv is None else argv)
        request = make_request(JOB, options)
        if request.dry_run:
            print(plan_text(request))
        else:
            run(request)
    except DPKMeansError as error:
        print(f"{JOB}: error: {error}", file=sys.stderr)
        return exits.exit_code(error)
    except KeyboardInterrupt:
        print(f"{JOB}: interrupted; epsilon already asked for is spent", file=sys.stderr)
        return exits.INTERRUPTED
    except Exception as error:
        _print_fault(error)
        return exits.FAILED
    return exits.OK


def run(request: Request) -> None:
    """Read, cluster, write and show."""
    # pyspark takes a second to import, so that --help and --dry-run go without.
    from dpkm_spark.algorithms.eugkm import eugkm  # noqa: PLC0415
    from dpkm_spark.job.open import open_table  # noqa: PLC0415
    from dpkm_spark.job.outputs import write_outputs  # noqa: PLC0415
    from dpkm_spark.spark.session import job_session  # noqa: PLC0415
    from dpkm_spark.spark.write import OutputFolder  # noqa: PLC0415

    started = datetime.now(timezone.utc)
    with Progress(JOB, quiet=request.quiet) as progress:
        progress("starting Spark")
        with job_session(f"dpkm-spark {JOB} {request.run_id}", request.domain.columns) as spark:
            # Whatever can be known to go wrong goes wrong before a query is paid for.
            folder = OutputFolder(spark, request.output)
            if not request.overwrite and folder.exists():
                raise OutputError(
                    f"output: {request.output!r} holds a result; use --overwrite or another one"
                )
            progress(f"opening {request.source_name}")
            table = open_table(spark, request)
            folder.prepare(request.run_id)
            result = eugkm(table, request.parameters, progress)
            progress(f"writing to {request.output}")
            try:
                outputs = write_outputs(
                    spark,
                    folder,
                    request=request,
                    result=result,
                    transcript=table.transcript,
                    started=started,
                )
            except BaseException:
                # It is paid for, so at least the terminal gets it.
                print(result_text(request, result, {}))
                raise
    print(result_text(request, result, outputs))


def _print_fault(error: Exception) -> None:
    """Show where an unforeseen fault arose, without its text, which may quote a row."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    print(
        f"{JOB}: unexpected {type(error).__name__}; its text is withheld, "
        f"since it could quote a row. Raised at:\n{frames}",
        file=sys.stderr,
    )
