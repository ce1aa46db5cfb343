# Fairlead's habits, one target each. `make help` lists them.
# Needs make and Python 3.11 or later; uses uv when it is on PATH because it is faster, and never requires it.

# The system's Python before one below somebody's home: users of their own, as which workloads run, cannot read the latter. Debian's
# is a faster build besides. One that cannot make environments (no python3-venv) is passed over.
PYTHON ?= $(or $(shell for each in /usr/bin/python3 python3; do "$$each" -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$each" && break; done),python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done
WORKERS ?= 4
BESIDE := -n $(WORKERS) --dist loadscope --no-loadscope-reorder
SEED ?= 1
SEEDS ?= 1000

# Some machines forbid Python to keep compiled files. The tests start hundreds of processes; each would compile everything again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help tools setup run test check format sim bench docs tour drills soak requirements clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) tools ## Make .venv with everything pinned by hash (nothing to do when it is current)

$(STAMP): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Fairlead needs Python 3.11 or later; set PYTHON=/path/to/python3" >&2; exit 1; }
	@set -e; if command -v uv >/dev/null 2>&1; then \
		test -x $(BIN)/python || uv venv --quiet --python $(PYTHON) $(VENV); \
		uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements/dev.txt; \
		uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .; \
	else \
		test -x $(BIN)/python || $(PYTHON) -m venv $(VENV); \
		$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip --default-pip >/dev/null; \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt; \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .; \
	fi
	@touch $@

# The API is tested with the real kubectl, the alert rules with the real promtool, DNS with the real dig; whichever stands first on PATH is taken.
# Not a target of its own in `make help`.
tools:
	@wanted=; command -v kubectl >/dev/null 2>&1 || wanted="kubernetes-client"; \
	command -v promtool >/dev/null 2>&1 || wanted="$$wanted prometheus"; \
	command -v dig >/dev/null 2>&1 || wanted="$$wanted bind9-dnsutils"; \
	test -n "$$wanted" || exit 0; \
	as_root=; test "$$(id -u)" = 0 || as_root="sudo -n"; \
	if command -v apt-get >/dev/null 2>&1 && $$as_root true 2>/dev/null; then \
		$$as_root apt-get update -qq; \
		for each in $$wanted; do $$as_root apt-get install -y -qq --no-install-recommends $$each >/dev/null; done; \
	fi; \
	command -v promtool >/dev/null 2>&1 || echo "no promtool on PATH: alerts are not tested (apt: prometheus)" >&2; \
	command -v kubectl >/dev/null 2>&1 || \
		echo "no kubectl on PATH: tests/api/test_kubectl.py will fail until there is one (apt: kubernetes-client)" >&2

run: $(STAMP) ## Start the local platform: a global plane, three regions, agents, sample work (Ctrl-C stops it)
	@$(BIN)/fairlead up

test: $(STAMP) ## Run every test (ARGS= is passed on to pytest)
	@$(BIN)/python -m pytest $(BESIDE) $(ARGS)

check: $(STAMP) ## Format, lint, types, import contracts, reference pages, house rules; runs all of them, fails if any does
	@told=$$(mktemp); $(BIN)/mypy --no-error-summary >"$$told" 2>&1 & types=$$!; status=0; \
	$(BIN)/ruff format --check --quiet . || { echo "not in the house format: run 'make format'"; status=1; }; \
	$(BIN)/ruff check --quiet . || status=1; \
	contracts=$$($(BIN)/lint-imports 2>&1) || { echo "$$contracts"; status=1; }; \
	$(BIN)/python -m fairlead.cli.reference --check || status=1; \
	$(BIN)/python -m pytest -q --no-header tests/house || status=1; \
	wait $$types || status=1; cat "$$told"; rm -f "$$told"; \
	exit $$status

format: $(STAMP) ## Rewrite the tree in the house format
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix .

sim: $(STAMP) ## Run the commit model over SEEDS= seeds starting at SEED=
	@$(BIN)/python -m fairlead.sim.commit_model --first-seed $(SEED) --seeds $(SEEDS)

bench: $(STAMP) ## List the benchmarks
	@$(BIN)/fairlead bench --help

tour: $(STAMP) ## Run the README's tour on a platform of its own and write docs/tour-transcript.md
	@$(BIN)/python -m tests.platform.tour

docs: $(STAMP) ## Write docs/reference, docs/design and deploy/dashboards, and test that the documents describe the tree
	@$(BIN)/python -m fairlead.cli.reference
	@$(BIN)/python -m fairlead.observe.dashboards
	@$(BIN)/python -m pytest -q --no-header tests/docs

drills: $(STAMP) ## Run every drill, each on a platform of its own (or DRILLS="NAME ..." on the one that runs)
	@status=0; for drill in $(or $(DRILLS),$$($(BIN)/python -m fairlead.drills)); do \
		$(BIN)/fairlead drill $$drill || status=1; \
	done; exit $$status

soak: $(STAMP) ## The long versions of the tests that have one
	@$(BIN)/python -m fairlead.sim.commit_model --first-seed $(SEED) --seeds 20000
	@$(BIN)/python -m tests.rigs.kill_rig --engine sqlite --kills 100 --commands 50000 --seed $(SEED) --json
	@$(BIN)/python -m tests.rigs.kill_rig --engine postgres --kills 20 --store-kills 6 --commands 10000 --seed $(SEED) --json
	@$(BIN)/python -m tests.rigs.kill_rig --engine etcd --kills 20 --store-kills 9 --commands 8000 --seed $(SEED) --json
	@FAIRLEAD_SOAK=1 $(BIN)/python -m pytest -m "soak or hypothesis" $(BESIDE) --timeout 7200 $(ARGS)

requirements: $(STAMP) ## Resolve the pins again from pyproject.toml (needs uv)
	@uv pip compile --quiet --universal --generate-hashes --no-annotate --no-header --python-version 3.11 \
		--upgrade --extra postgres --extra etcd pyproject.toml -o requirements/runtime.txt
	@uv pip compile --quiet --universal --generate-hashes --no-annotate --no-header --python-version 3.11 \
		--upgrade --extra dev pyproject.toml -o requirements/dev.txt

clean: ## Remove caches and the virtual environment
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
