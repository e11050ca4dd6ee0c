"""A self-contained HTML report of a run, made from released values only."""

from dpkm_spark.report.data import ReportData
from dpkm_spark.report.html import render_html

__all__ = ["ReportData", "render_html"]
