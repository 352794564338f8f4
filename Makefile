# `make demo` makes a map and a report from real data on this machine; `make help` lists the rest.
SHELL := bash
.DEFAULT_GOAL := help
.PHONY: help demo test test-browser test-slurm slurm-commands lint schema pictures clean chromium

# Relative, so that a folder with spaces in its name works; the commands below find what is installed here first.
VENV := .venv
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
unexport PYTHONPATH PYTHONHOME

help:  ## show these targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 14

demo: $(VENV)/installed-workflow  ## the whole workflow on the demo scene; does nothing when all is up to date
	@if snakemake --profile profiles/demo --dry-run 2>&1 | grep '^Nothing to be done' > /dev/null; then \
	  echo "Nothing to be done: all results are up to date. Open results/report/index.html"; \
	else \
	  snakemake --profile profiles/demo && landbalance summary; \
	fi

test: $(VENV)/installed-workflow-dev-onnx-cloud-stac  ## all tests that need neither Slurm nor a GPU nor a browser
	python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder -m "not slurm and not gpu and not browser"

test-browser: $(VENV)/installed-workflow-dev-browser chromium  ## the reports in a headless Chromium, which is installed if there is none
	python -m pytest -m browser tests/report

# Debian's package where it can be installed, else the build that playwright brings.
chromium: $(VENV)/installed-workflow-dev-browser
	@for name in chromium chromium-browser google-chrome; do command -v "$$name" > /dev/null && exit; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
	  apt-get update -q && apt-get install -y -q --no-install-recommends chromium fonts-dejavu-core; \
	else \
	  python -m playwright install chromium; \
	fi

test-slurm: slurm-commands $(VENV)/installed-workflow-dev  ## the tests on a real Slurm, which is started on this machine (root, Debian)
	python -m pytest -m slurm --durations 0 --durations-min 5 tests/slurm

# Debian's packages; nothing of them is started but by the tests, and those stop it again.
slurm-commands:
	@if [ "$$(id -u)" != 0 ]; then \
	  echo "make test-slurm starts Slurm's daemons and brakes nodes: run it as root (in a container, for example)." >&2; exit 1; \
	fi; \
	for name in slurmctld slurmd sbatch; do \
	  PATH="$$PATH:/usr/sbin:/sbin" command -v "$$name" > /dev/null && continue; \
	  if ! command -v apt-get > /dev/null; then \
	    echo "make test-slurm: $$name is not there, and neither is apt-get to install it. Install Slurm's controller," \
	      "node daemon and commands." >&2; exit 1; \
	  fi; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
	    apt-get install -y -qq --no-install-recommends slurmctld slurmd slurm-client && break; \
	  echo "make test-slurm: slurmctld, slurmd and slurm-client could not be installed." >&2; exit 1; \
	done

lint: $(VENV)/installed-workflow-dev-cloud-stac  ## style, types, imports, workflow, spelling, generated files
	ruff check .
	ruff format --check .
	mypy
	snakefmt --check Snakefile workflow
	snakemake --lint
	lint-imports
	codespell
	python -m landbalance.config.schema --check

schema: $(VENV)/installed-workflow  ## make the schemas and docs/configuration.md anew from the typed settings
	python -m landbalance.config.schema

pictures: demo chromium  ## make the pictures of the docs anew
	mkdir -p docs/pictures
	python benchmarks/curves.py --picture docs/pictures/loss-curves.svg
	python docs/pictures/take.py results/report docs/pictures

clean:  ## remove results, logs and caches (not the environment)
	rm -rf results logs .snakemake .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

# installed-a-b holds the extras a and b. It is made anew when a version or a dependency changes.
$(VENV)/installed-%: constraints.txt pyproject.toml | $(VENV)/pyvenv.cfg
	@echo "Installing the packages of $* (some gigabytes with torch, once) ..."
	python -m pip install --disable-pip-version-check --constraint constraints.txt --editable ".[$(subst -,$(comma),$*)]"
	@touch "$@"

comma := ,

$(VENV)/pyvenv.cfg:
	@for name in python3 python3.11 python3.12 python3.13 python3.14; do \
	  if "$$name" -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then \
	    echo "Making $(VENV) with $$("$$name" --version)"; \
	    exec "$$name" -m venv $(VENV); \
	  fi; \
	done; \
	echo "No Python 3.11 or later (with venv) is on the PATH. Install one, for example python3.11 and python3.11-venv." >&2; \
	exit 1
