"""The report stage: one HTML file per experiment that opens anywhere, an overview of all, a comparison of arms."""

from landbalance.report.compare import run_compare
from landbalance.report.overview import run_index
from landbalance.report.page import run
from landbalance.report.reproduce import Inputs
from landbalance.report.summary import summary

__all__ = ["Inputs", "run", "run_compare", "run_index", "summary"]
