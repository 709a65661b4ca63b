# `make demo` and `make test` need nothing but Python 3.11 or later.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# CI installs exactly what is locked; people get the newest that fits the lower bounds.
CONSTRAINTS ?= $(if $(CI),-c requirements.lock)
# More than cores: tests of real processes wait more than they compute.
WORKERS ?= 4
# Tests start hundreds of Pythons, which would compile corelane each time.
unexport PYTHONDONTWRITEBYTECODE
# A worker runs neighbouring tests, so what a module starts is started once; the last ones are shared out.
SPREAD := -n $(WORKERS) --dist worksteal

.PHONY: pictures bench-advice bench-agent bench-house bench-limits bench-paths bench-placement bench-quality bench-scheduler bench-up demo soak soak-scheduler test test-integration test-system test-thorough test-vm lint \
    format lock clean help

help: ## what there is to make
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(STAMP): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit("corelane needs Python 3.11 or later; this is %s. Say PYTHON=/path/to/python3.11" % sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(CONSTRAINTS) -e '.[all,dev]'
	@touch $@

demo: $(STAMP) ## install, and run the main job from pods to pinned processes
	$(BIN)/corelane demo

test: $(STAMP) ## all tests but the slow system and integration tests
	$(BIN)/python -m pytest $(SPREAD) -m 'not system and not integration'

test-thorough: $(STAMP) ## the tests of properties with ten times the examples, drawn anew each time
	$(BIN)/python -m pytest $(SPREAD) -m 'hypothesis and not system' --hypothesis-profile=thorough

test-system: $(STAMP) ## the slow tests against real programs
	$(BIN)/python -m pytest -m 'system and not vm'

test-vm: $(STAMP) ## tests on a kernel with four NUMA nodes and cgroup v2, booted once in qemu
	$(BIN)/python -m pytest -m vm tests/guest

test-integration: $(STAMP) ## a real kubelet and API server: $$KUBEBUILDER_ASSETS (directory), $$KUBELET (program)
	$(BIN)/python -m pytest -m integration

lint: $(STAMP) ## style, types, and the table of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_layering.py

bench-placement: $(STAMP) ## how fast CPUs are picked, against upstream's figures
	$(BIN)/python bench/placement.py

bench-quality: $(STAMP) ## how well CPUs are placed, by allocator
	$(BIN)/python bench/quality.py

bench-limits: $(STAMP) ## how well the model of CPU limits agrees with this kernel, and with published tables: 10 minutes, root
	$(BIN)/python bench/limits.py

bench-advice: $(STAMP) ## whether the predictions of limits advise hold in real cgroups: 42 loads, 15 minutes, root
	$(BIN)/python bench/advice.py

bench-agent: $(STAMP) ## what the agent beside a kubelet costs, and how soon containers are on their CPUs
	$(BIN)/python bench/agent.py

bench-scheduler: $(STAMP) ## how fast pods are placed, and how many nodes refuse: $$KUBEBUILDER_ASSETS, $$KUBE_SCHEDULER (program)
	$(BIN)/python bench/scheduler.py

bench-up: $(STAMP) ## what corelane up costs with 10, 100 and 1,000 simulated nodes: start, idle, 500 pods at once
	$(BIN)/python bench/up.py

soak: $(STAMP) ## an hour of corelane up: churn, 60 kill -9, broken files, idle times; SOAK="--seed N" for more
	$(BIN)/python bench/soak.py $(SOAK)

soak-scheduler: $(STAMP) ## half an hour of corelane scheduler: pods, nodes and API servers come and go; SOAK="--server real"
	$(BIN)/python bench/scheduler_soak.py $(SOAK)

pictures: $(STAMP) ## draw the pictures of README and docs anew
	$(BIN)/python bench/pictures.py

bench-house: $(STAMP) ## how large every room of the code is, and how finely it is cut
	$(BIN)/python bench/house.py

bench-paths: $(STAMP) ## how many source files four everyday paths run through
	$(BIN)/python bench/paths.py

format: $(STAMP) ## let ruff fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: $(STAMP) ## write requirements.lock from what is installed
	$(BIN)/python -m pip freeze --exclude-editable --exclude pip --exclude setuptools > requirements.lock

clean: ## remove what make made
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
