"""A job, from the command line to the written result: the same for every algorithm."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timezone

from dpkm_spark.algorithms.registry import ALGORITHMS
from dpkm_spark.errors import DPKMeansError, OutputError, QueryError
from dpkm_spark.job import exits
from dpkm_spark.job.options import parse_options
from dpkm_spark.job.progress import Progress
from dpkm_spark.job.release import Release
from dpkm_spark.job.request import Request, make_request
from dpkm_spark.job.show import plan_text, result_text


def main(name: str, argv: Sequence[str] | None = None) -> int:
    """Run a job.

    Parameters
    ----------
    name : str
        Of the algorithm, as in the registry.
    argv : sequence of str, optional
        Arguments after the script's name; by default the process's own.

    Returns
    -------
    int
        Exit code, as `dpkm_spark.job.exits` lists them.
    """
    algorithm = ALGORITHMS[name]
    try:
        options = parse_options(algorithm, sys.argv[1:] if argv is None else argv)
        request = make_request(algorithm, options)
        if request.dry_run:
            print(plan_text(request))
        else:
            run(request)
    except DPKMeansError as error:
        print(f"{name}: error: {error}", file=sys.stderr)
        return exits.exit_code(error)
    except KeyboardInterrupt:
        print(f"{name}: interrupted; epsilon already asked for is spent", file=sys.stderr)
        return exits.INTERRUPTED
    except Exception as error:
        _print_fault(name, error)
        return exits.FAILED
    return exits.OK


def run(request: Request) -> None:
    """Read, cluster, write and show."""
    # pyspark takes a second to import, so that --help and --dry-run go without.
    from dpkm_spark.job.open import open_input  # noqa: PLC0415
    from dpkm_spark.job.outputs import parts, write_outputs  # noqa: PLC0415
    from dpkm_spark.spark.session import job_session  # noqa: PLC0415
    from dpkm_spark.spark.write import OutputFolder  # noqa: PLC0415

    started = datetime.now(timezone.utc)
    with Progress(request.job, quiet=request.quiet) as progress:
        progress("starting Spark")
        name = f"dpkm-spark {request.job} {request.run_id}"
        with job_session(name, request.domain.columns) as spark:
            # Whatever can be known to go wrong goes wrong before a query is paid for.
            folder = OutputFolder(spark, request.output)
            if not request.overwrite and folder.exists():
                raise OutputError(
                    f"output: {request.output!r} holds a result; use --overwrite or another one"
                )
            progress(f"opening {request.source_name}")
            opened = open_input(spark, request)
            folder.prepare(request.run_id)
            stale = folder.stale(parts(request))
            clustering = opened.cluster(request, progress)
            release = Release(request, clustering, opened.answers, started, spark.version)
            try:
                release = _evaluated(release, lambda: opened.exact_nicv(clustering), progress)
                progress(f"writing to {request.output}")
                folder.discard(stale)
                outputs = write_outputs(spark, folder, release)
            except BaseException:
                # It is paid for, so at least the terminal gets it.
                print(result_text(release, {}))
                raise
    print(result_text(release, outputs))


def _evaluated(release: Release, nicv: Callable[[], float], progress: Progress) -> Release:
    """Add the exact NICV if it is asked for, or what kept it from being computed."""
    if not release.request.evaluate:
        return release
    progress("evaluating on the raw rows: the run is NOT PRIVATE from here on")
    try:
        return replace(release, exact_nicv=nicv())
    except QueryError as error:
        # The release is paid for; it must not be lost to a failed extra.
        return replace(release, evaluation_failure=str(error))


def _print_fault(name: str, error: Exception) -> None:
    """Show where an unforeseen fault arose, without its text, which may quote a row."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    print(
        f"{name}: unexpected {type(error).__name__}; its text is withheld, "
        f"since it could quote a row. Raised at:\n{frames}",
        file=sys.stderr,
    )
