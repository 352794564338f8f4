"""Runs Snakemake many times: it is imported once (about two seconds), and each run is a fork.

Reads requests as lines of JSON, ``{"arguments": […], "folder": …, "environment": {…}}``, and answers each with a line
``{"status": …, "output": …}``.
"""

import json
import os
import sys
import tempfile
import traceback
from typing import Any

import snakemake.cli
import snakemake.workflow
import snakemake_executor_plugin_slurm


def main() -> None:
    """Answer requests until the input ends."""
    for line in sys.stdin:
        request = json.loads(line)
        with tempfile.TemporaryFile() as output:
            child = os.fork()
            if child == 0:
                run(request, output.fileno())
            _, status = os.waitpid(child, 0)
            output.seek(0)
            text = output.read().decode()
        sys.stdout.write(json.dumps({"status": os.waitstatus_to_exitcode(status), "output": text}) + "\n")
        sys.stdout.flush()


def run(request: dict[str, Any], output: int) -> None:
    """Become the Snakemake that a request asks for; does not return."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(request["folder"])
    snakemake.workflow.Workflow._rundir = os.getcwd()  # Snakemake notes it when it is imported
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[:0] = [os.environ["PYTHONPATH"]]
    sys.argv = ["snakemake", *request["arguments"]]
    status = 1
    try:
        snakemake.cli.main()
        status = 0
    except SystemExit as stop:
        if isinstance(stop.code, str):
            sys.stderr.write(stop.code + "\n")
        else:
            status = stop.code or 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    assert snakemake_executor_plugin_slurm  # loaded here, so that no fork has to
    main()
