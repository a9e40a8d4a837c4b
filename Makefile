# make demo | test | templates | faults | check | fleet N=4 | bench | docs | golden | clean
# Each target makes the virtual environment that it needs in .venv; PYTHON chooses the interpreter (3.10 or later).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
N ?= 4
SOAK_MINUTES ?= 30
# Tests that run beside each other: those with hosts of their own, and those of this machine.
JOBS ?= 2
PYTEST_ARGS ?=

.PHONY: demo test templates faults quick check fleet bench docs golden clean

demo: $(VENV)/.train
	@rm -rf demo
	$(BIN)/dtctl init demo
	cd demo && ../$(BIN)/dtctl up --local -f --replace --set name=dtctl-demo --set dirs.work="$(CURDIR)/demo/work" --set dirs.output="$(CURDIR)/demo/output"

test: $(VENV)/.train $(VENV)/.dev
	tests/hosts/install-packages
	-$(BIN)/python -m tests.environments
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -m "not slow" $(PYTEST_ARGS)

# Every template on this machine and on separate hosts; `make test` leaves out the variants.
templates: $(VENV)/.train $(VENV)/.dev
	tests/hosts/install-packages
	-$(BIN)/python -m tests.environments
	$(BIN)/python -m pytest -v tests/templates $(PYTEST_ARGS)

# Everything that breaks, the soak too (SOAK_MINUTES=30); writes the table of docs/faults.md.
faults: $(VENV)/.train $(VENV)/.dev
	tests/hosts/install-packages
	DTCTL_FAULT_REPORT=docs/faults.md SOAK_MINUTES=$(SOAK_MINUTES) $(BIN)/python -m pytest -s tests/faults $(PYTEST_ARGS)

# What a change is tried with while it is made: no TensorFlow, no fleet.
quick: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -m "not training and not fleet" $(PYTEST_ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/vermin --no-tips --violations -t=3.8- dtctl/agent dtctl/trainer.py
	$(BIN)/python docs/generate.py --check

fleet: $(VENV)/.dev
	tests/hosts/install-packages
	$(BIN)/python -m tests.hosts.play $(N)

bench: $(VENV)/.train $(VENV)/.dev
	tests/hosts/install-packages clush rsync
	$(BIN)/python -m benchmarks

docs: $(VENV)/.dev
	$(BIN)/python docs/generate.py

# Every sentence that a user may see, in tests/golden.txt.
golden: $(VENV)/.dev
	$(BIN)/python -m tests.golden --write

clean:
	rm -rf $(VENV) demo build dist .pytest_cache .mypy_cache .ruff_cache

$(VENV)/.base: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "dtctl needs Python 3.10 or later: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	@touch $@

$(VENV)/.train: $(VENV)/.base
	$(BIN)/python -m pip install --quiet -e '.[train]'
	@touch $@
