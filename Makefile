# make demo | test | rotation | nightly PARTS="wheel lowest" MINUTES=20 | templates | faults | check | mutants | fleet N=4 | bench | docs | screens | site | golden | clean
# Each target makes the virtual environment that it needs in .venv; PYTHON chooses the interpreter (3.10 or later).

PYTHON ?= python3
# Thousands of Pythons start in the tests; each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
BIN := $(VENV)/bin
N ?= 4
# Tests that run beside each other. Most wait more than they compute, so they are more than the cores.
JOBS ?= 6
PYTEST_ARGS ?=
# Of `make nightly`; all of them where it is empty.
PARTS ?=
# One that fails is tried once more, and shown as R where it passes then: mend it at its cause.
TESTS := $(BIN)/python -m pytest -q -n $(JOBS) --dist loadgroup --reruns 1 -r aR --durations 25

# An environment that happens to be active is not the one of these targets.
unexport VIRTUAL_ENV CONDA_PREFIX

.PHONY: demo test nightly rotation templates faults quick check mutants rooms fleet bench docs screens site golden clean packages environments

demo: $(VENV)/.train
	@rm -rf demo
	$(BIN)/dtctl init demo
	cd demo && ../$(BIN)/dtctl up --local -f --replace --set name=dtctl-demo --set dirs.work="$(CURDIR)/demo/work" --set dirs.output="$(CURDIR)/demo/output"

test:
	@$(MAKE) -j2 --no-print-directory $(VENV)/.all packages
	$(TESTS) $(PYTEST_ARGS)

packages: | $(VENV)
	@tests/hosts/install-packages

# Of other frameworks, for the templates at night; one that cannot be made is a reason to skip.
environments: | $(VENV)
	-@$(PYTHON) -m tests.environments

# What takes hours, or less with MINUTES=20 for each run of pytest; docs/nightly.md has what became of it.
nightly: $(VENV)/.browser packages environments
	tests/hosts/install-packages chromium
	$(BIN)/python -m tests.nightly $(PARTS)

# Another part of the nightly for each landing, in 20 minutes at most; SLICE=3/12 chooses which.
SLICE ?=
rotation: $(VENV)/.browser packages
	tests/hosts/install-packages chromium
	$(BIN)/python -m tests.nightly.rotation $(addprefix --slice ,$(SLICE))

# Every template on this machine and on separate hosts, with its variants.
templates: $(VENV)/.all packages environments
	DTCTL_NIGHTLY=1 $(BIN)/python -m pytest -v tests/templates $(PYTEST_ARGS)

# Everything that breaks; writes the table of docs/faults.md.
faults: $(VENV)/.all packages
	DTCTL_NIGHTLY=1 DTCTL_FAULT_REPORT=docs/faults.md $(BIN)/python -m pytest -s tests/faults $(PYTEST_ARGS)

# What a change is tried with while it is made: no TensorFlow, no fleet.
quick: $(VENV)/.dev
	$(TESTS) -m "not training and not fleet" $(PYTEST_ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	tests/templates/typed $(BIN)/mypy
	$(BIN)/vermin --no-tips --violations -t=3.8- dtctl/agent dtctl/trainer.py
	$(BIN)/python docs/generate.py --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir $(VENV)/.site

# Small faults in the pure modules, one at a time: which of them no test finds (MODULES="dtctl.plan* dtctl.agent.run.policy*").
MODULES ?=
mutants: $(VENV)/.dev
	@$(BIN)/python -m pip install --quiet -e '.[mutants]'
	$(BIN)/python -m mutmut run $(MODULES)
	$(BIN)/python -m mutmut results

# The rooms with their sizes, and whether dtctl stands without each (minutes for each; ROOMS="dump data").
ROOMS ?=
rooms: $(VENV)/.dev
	$(BIN)/python -m tests.rooms --remove $(ROOMS)

fleet: $(VENV)/.dev
	tests/hosts/install-packages
	$(BIN)/python -m tests.hosts.play $(N)

# dtctl and its peers side by side, into docs/performance.md and docs/costs.md; NAMES="lines delay" for what dtctl takes by itself.
NAMES ?=
HOSTS ?= 30
ROUNDS ?= 2
bench: $(VENV)/.all
	tests/hosts/install-packages pdsh rsync
	$(BIN)/python -m benchmarks $(NAMES) --hosts $(HOSTS) --rounds $(ROUNDS) --pages docs
	$(BIN)/python docs/generate.py

docs: $(VENV)/.dev
	$(BIN)/python docs/generate.py

# The screens that README and the quick start show, from commands typed on two hosts (root), and the pictures.
screens: $(VENV)/.browser
	tests/hosts/install-packages chromium
	PYTHONPATH=. $(BIN)/python docs/screens.py

site: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Prints every sentence that a user may see.
golden: $(VENV)/.dev
	$(BIN)/python -m tests.golden

clean:
	rm -rf $(VENV) demo build dist site mutants .pytest_cache .mypy_cache .ruff_cache

# An order to make, not a reason to make anew: what lies in it changes its time.
$(VENV):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "dtctl needs Python 3.10 or later: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }

$(VENV)/.base: pyproject.toml | $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@$(BIN)/python -m pip install --quiet -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	@$(BIN)/python -m pip install --quiet -e '.[dev,docs]'
	@touch $@

$(VENV)/.train: $(VENV)/.base
	@$(BIN)/python -m pip install --quiet -e '.[train]'
	@touch $@

# Both at once: two pips at work in one place get in each other's way.
$(VENV)/.all: $(VENV)/.base
	@$(BIN)/python -m pip install --quiet -e '.[dev,docs,train]'
	@touch $(VENV)/.dev $(VENV)/.train $@

# Pages are looked at in Debian's Chromium.
$(VENV)/.browser: $(VENV)/.all
	@$(BIN)/python -m pip install --quiet -e '.[browser]'
	@touch $@
