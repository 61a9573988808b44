# `make test` needs python3 (3.11 or 3.12) with pip, and nothing else; it makes .venv by itself.

PYTHON ?= $(shell for p in python3 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' 2>/dev/null \
	&& echo $$p && break; done)
BIN := .venv/bin
# Most tests that take long wait for Ray to start processes: two at a time.
PYTEST := $(BIN)/python -m pytest --durations=10 -n 2 --dist worksteal
# Ray and MLflow take seconds to import, so that their folders' doctests wait for `make test`.
FAST := -m "not ray and not mlflow and not soak" \
	--ignore=mtcon_ray/cluster --ignore=mtcon_ray/sweep --ignore=mtcon_ray/tracking

.PHONY: demo check test soak lint docs clean

demo: .venv/ready  ## the main job: a temperature sweep on synthetic images
	$(BIN)/python experiments/sweep_temperature.py

check: lint  ## some minutes: style, types, tests without Ray and MLflow
	$(PYTEST) $(FAST)

test: lint  ## what CI runs: everything but the soak tests
	$(PYTEST) -m "not soak"

soak: .venv/ready docs  ## by hand: many rounds, load, every command of the pages, and their building
	$(PYTEST) --timeout 3600 -m soak

lint: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: .venv/ready  ## the pages, in docs/_build
	$(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt -e '.[docs]'
	$(BIN)/python docs/reference.py
	$(BIN)/sphinx-build --fail-on-warning --nitpicky --keep-going --quiet docs docs/_build

clean:  ## the environment and caches; results under ~/mtcon-ray stay
	rm -rf .venv build dist docs/_build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/ready: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or 3.12 found; name one: make PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt -e '.[dev]'
	@touch $@
