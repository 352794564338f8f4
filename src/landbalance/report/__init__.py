"""The report stage: one HTML file per experiment that opens anywhere, and an overview of all."""

from landbalance.report.overview import run_index
from landbalance.report.page import run
from landbalance.report.reproduce import Inputs
from landbalance.report.summary import summary

__all__ = ["Inputs", "run", "run_index", "summary"]
