"""Reports: one self-contained page from the result files of runs."""

from pclc.report.page import render_report, write_report
from pclc.report.runs import Run, load_runs

__all__ = ["Run", "load_runs", "render_report", "write_report"]
