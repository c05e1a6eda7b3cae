# Everything sets itself up: Python 3.11+, a C compiler and make are all that has to be there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BOOTSTRAP ?=
STAMP := $(VENV)/.installed
BENCH_STAMP := $(VENV)/.installed-bench
DEMO_STAMP := $(VENV)/.installed-demo
SPARK_STAMP := $(VENV)/.installed-demo-spark
# Tests mostly wait for brokers; each process has some of its own. WORKERS=0 runs them one after the other.
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
CORE := $(wildcard aioproducer/_*.pyx aioproducer/_*.pxd) setup.py pyproject.toml

.PHONY: help install build test test-long test-browser chromium live-metrics-picture simulate mutants check docs docs-serve sanitize fuzz demo demo-spark bench bench-quick bench-spark soak clean
help:
	@echo "make demo [BOOTSTRAP=host:port]  publish a real data set into a real Kafka, read it back, verify it"
	@echo "make demo-spark                  the same data through Spark, exactly once, proved by an audit"
	@echo "make test                        every test, with real brokers (sets itself up)"
	@echo "make test-browser                the pages in a headless Chromium; make chromium installs Debian's where it may"
	@echo "make test-long                   the same tests, longer variants included"
	@echo "make simulate [SEEDS=n | SEEDS=from-to | SEED=n]  the producer under seeded faults, see docs/simulation.md"
	@echo "make mutants                     deliberate bugs that the simulation has to find"
	@echo "make check                       linters, types, layering, promised numbers"
	@echo "make docs, make docs-serve       the documentation as a site in build/site; on http://127.0.0.1:8000"
	@echo "make sanitize                    the compiled core under AddressSanitizer and UBSan"
	@echo "make fuzz [SECONDS=600]          damaged bytes for every decoder"
	@echo "make bench, make bench-quick     speed beside the other Python clients"
	@echo "make bench-spark                 speed in Spark, beside Spark's own sink"
	@echo "make soak [MINUTES=30]           full load while brokers come and go: does anything grow?"

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

# setuptools warns of every editable install, in fourteen lines.
$(STAMP): $(VENV)/bin/python $(CORE)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --group dev -e .
	@touch $@

install build: $(STAMP)

# What the tests need takes much longer to install than what the demos need; where it is installed, they use it.
$(DEMO_STAMP): EXTRAS := demo
$(SPARK_STAMP): EXTRAS := demo,audit
$(BENCH_STAMP): EXTRAS := bench
$(DEMO_STAMP) $(SPARK_STAMP): $(VENV)/bin/python $(CORE)
$(BENCH_STAMP): $(STAMP)
$(DEMO_STAMP) $(SPARK_STAMP) $(BENCH_STAMP):
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet -e ".[$(EXTRAS)]"
	@touch $@

demo: $(or $(wildcard $(STAMP)),$(DEMO_STAMP))
	$(BIN)/aioproducer demo $(if $(BOOTSTRAP),--bootstrap $(BOOTSTRAP))

demo-spark: $(or $(wildcard $(STAMP)),$(SPARK_STAMP))
	$(BIN)/aioproducer demo-spark $(if $(BOOTSTRAP),--bootstrap $(BOOTSTRAP))

test: $(STAMP)
	$(PYTEST) -m "not slow" $(PYTEST_ARGS)

test-long: export AIOPRODUCER_TEST_LOOPS = asyncio,debug,uvloop
test-long: $(STAMP)
	$(PYTEST) $(PYTEST_ARGS)

test-browser: chromium $(STAMP)
	$(BIN)/python -m pytest -m browser $(PYTEST_ARGS)

chromium:
	@bash tests/broker/install_chromium.sh

live-metrics-picture: $(STAMP)
	$(BIN)/python -m tests.broker.live_metrics_picture

simulate: $(STAMP)
	$(BIN)/python -m tests.simulation $(if $(SEED),seed $(SEED),$(SEEDS))

mutants: $(STAMP)
	$(BIN)/python -m tests.simulation.mutants $(MUTANTS)

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/cython-lint aioproducer
	$(BIN)/python -m pytest -q tests/test_layering.py tests/test_numbers.py

bench bench-quick: $(BENCH_STAMP)
	$(BIN)/python -m benchmarks $(if $(filter bench-quick,$@),--quick)

bench-spark: $(STAMP)
	$(BIN)/python -m benchmarks.bench_spark

# The theme's maker has a word to say about the next MkDocs at each build.
docs docs-serve: export NO_MKDOCS_2_WARNING = 1
docs docs-serve: $(STAMP)
	$(BIN)/python -m mkdocs $(if $(filter docs-serve,$@),serve,build --quiet)

sanitize: $(STAMP)
	$(BIN)/python tests/sanitize.py

fuzz: SECONDS ?= 600
fuzz: $(STAMP)
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS)

soak: MINUTES ?= 30
soak: $(STAMP)
	$(BIN)/python -m benchmarks.soak --minutes $(MINUTES)

clean:
	rm -rf build dist .cache out *.egg-info aioproducer/*.so $(VENV)/.installed*
