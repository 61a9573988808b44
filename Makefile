# `make test` needs python3 (3.11 to 3.13) with pip, and nothing else; it makes .venv by itself.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null \
	&& echo $$p && break; done)
BIN := .venv/bin
# Many tests wait for processes to start or end: three at a time, also on two cores. Each further
# worker takes fifteen seconds of processor time to collect the tests.
PYTEST := $(BIN)/python -m pytest --durations=10 -n 3 --dist worksteal
# Importing Ray and MLflow takes each worker ten seconds, a third of the time of `make check`.
# It therefore leaves out every file that imports them, not only the tests that start them.
# Quick tests wait for nothing, and collecting them takes each worker ten seconds: two at a time.
WITHOUT_RAY := $(addprefix --ignore=, \
	mtcon_ray/cluster mtcon_ray/sweep mtcon_ray/tracking \
	tests/benchmarks tests/cluster tests/docker tests/sweep tests/tracking \
	tests/comparison/test_run.py tests/security/test_canary.py)
FAST := -m "not ray and not mlflow and not slow and not soak" $(WITHOUT_RAY)

# The minor versions of Ray that pyproject.toml allows, up to the newest one tested.
RAYS := 2.55 2.56 2.57 2.58 2.59 2.60

.PHONY: demo check test everything soak soak-long soak-rays lint style types docs clean

demo: .venv/ready  ## the main job: a temperature sweep on synthetic images
	$(BIN)/python experiments/sweep_temperature.py

check: lint  ## 90 seconds: style, types, quick tests without Ray and MLflow
	$(PYTEST) -n 2 $(FAST)

# Processes that the tests start, Ray's too, are not measured. The floor stands in pyproject.toml.
# Types are checked beside the tests, many of which wait.
test: style  ## what CI runs: everything but the soak tests, with branch coverage
	$(MAKE) --jobs=2 types everything

everything: .venv/compiled
	$(PYTEST) --cov --cov-report= -m "not soak"

soak: docs  ## by hand: many rounds, load, all commands of the pages, building these
	$(PYTEST) --timeout 3600 -m soak

# An hour, and two more environments of gigabytes each. lowest-direct takes the lower
# bounds of pyproject.toml, and the newest of what those need in turn. The newest versions are those
# of the day, so that a failure may be due to a release of another project.
soak-long: $(addprefix soak-,lowest-direct highest)  ## by hand: both ends of the dependency ranges

# docs/cluster.md has the results.
soak-rays: $(addprefix soak-ray-,$(RAYS))  ## by hand: each minor version of Ray

soak-ray-%: .venv/ready
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv/soak-ray-$*
	$(BIN)/uv pip install --quiet --python .venv/soak-ray-$*/bin/python -e '.[dev]' 'ray==$*.*'
	.venv/soak-ray-$*/bin/python -m pytest -n 2 --dist worksteal $(FAST)
	.venv/soak-ray-$*/bin/python -m pytest -n 2 -m "not soak" tests/cluster tests/sweep
	.venv/soak-ray-$*/bin/python -m pytest tests/sweep/test_distributed_trial.py

soak-lowest-direct soak-highest: soak-%: .venv/ready
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv/soak-$*
	$(BIN)/uv pip install --quiet --python .venv/soak-$*/bin/python --resolution $* -e '.[dev]'
	.venv/soak-$*/bin/python -m pytest -n 2 --dist worksteal -m "not soak"

lint: style types

style: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: .venv/ready
	$(BIN)/mypy

docs: .venv/ready  ## the pages: docs/_build/docs/index.html
	$(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt -e '.[docs]'
	$(BIN)/python docs/reference.py
	$(BIN)/sphinx-build --fail-on-warning --nitpicky --keep-going --quiet -c docs . docs/_build

clean:  ## the environment and caches; results under ~/mtcon-ray stay
	rm -rf .venv build dist docs/_build .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One process compiles what all tests import. Otherwise each worker does, at the same time.
.venv/compiled: .venv/ready
	-@$(BIN)/python -m pytest --collect-only -qq >/dev/null  # an error will stop the tests, too
	@touch $@

.venv/ready: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "no Python 3.11 to 3.13 found; name one: make PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt -e '.[dev]'
	@touch $@
