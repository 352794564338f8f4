"""Snakemake that asks each second which jobs have ended; else it is as it is.

Its plugin for Slurm asks ten seconds later after each round in which no job has ended, whatever the settings say.
"""

import sys

from snakemake.cli import main
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

RemoteExecutor.next_seconds_between_status_checks = property(lambda self: 1.0, lambda self, value: None)
sys.exit(main())
