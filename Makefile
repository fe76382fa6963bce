# Every target sets up all it needs from a fresh clone, and no more: the demo the library, the docs
# what builds them, all others everything. It goes into a .venv, made once; each part is kept while
# the declared dependencies (pyproject.toml) stay the same. Another Python has an environment of its
# own: make test PYTHON=python3.13 VENV=.venv-3.13.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DECLARED := $(shell cksum < pyproject.toml | tr ' ' '-')
LIBRARY := $(VENV)/.library-$(DECLARED)
DOCS := $(VENV)/.docs-$(DECLARED)
ALL := $(VENV)/.all-$(DECLARED)
INSTALL := -m pip install --quiet --disable-pip-version-check --editable
PIP := $(BIN)/python $(INSTALL)
FREE := $(VENV)-free-threaded
FREE_ALL := $(FREE)/.all-$(DECLARED)
THREADS := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
# Bytecode is kept whatever the caller's environment says: the tests start hundreds of processes,
# and each would compile all of telegrad again. The benchmarks time the import beside that of a
# PyTorch that is compiled.
BYTECODE := PYTHONDONTWRITEBYTECODE=
# Two processes share the tests, file by file: while one waits for its workers, the other goes on.
SHARED = --numprocesses $(or $(PROCESSES),2) --dist loadfile --no-loadscope-reorder

.PHONY: demo test test-ray test-free-threaded soak soak-simulation fuzz bench examples docs lint release-check clean

demo: $(LIBRARY)
	$(BIN)/python -m telegrad.demo

test: lint
	$(THREADS) $(BYTECODE) $(BIN)/python -m pytest $(SHARED)

# Chaos on real processes; what it did is in build/soak. SEED=... makes the same choices again.
soak: $(ALL)
	$(THREADS) $(BYTECODE) $(BIN)/python -m tests.soak --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED))

# Hours instead of minutes: many more seeds of the simulations, a thousand contexts a trainer.
soak-simulation: $(ALL)
	$(THREADS) $(BYTECODE) TELEGRAD_SOAK=1 $(BIN)/python -m pytest --timeout 36000 --hypothesis-profile=large -s tests

# Coverage-guided, of all that parses what a peer sent; needs the extra `fuzz`.
fuzz: $(ALL)
	$(PIP) '.[fuzz]'
	$(THREADS) $(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),10)

# What takes minutes on a real Ray of several nodes; `make test` has a short test on one.
test-ray: $(ALL)
	$(THREADS) $(BYTECODE) $(BIN)/python -m pytest -m ray

# The tests, but those on Ray, on a Python without its lock: PYTHON=python3.14t.
test-free-threaded: $(FREE_ALL)
	$(THREADS) $(BYTECODE) $(FREE)/bin/python -m pytest $(SHARED)

lint: $(ALL)
	$(BIN)/ruff check src tests benchmarks examples docs tools
	$(BIN)/ruff format --check src tests benchmarks examples docs tools
	$(BIN)/mypy

bench: $(ALL)
	$(THREADS) $(BYTECODE) $(BIN)/python -m benchmarks

examples: $(ALL)
	for example in examples/*.py; do $(THREADS) $(BIN)/python $$example || exit 1; done

# The site, in build/site; open index.html, no server and no network needed.
docs: $(DOCS)
	$(BIN)/python -m sphinx -q -E -W --keep-going -b html docs build/site
	@echo "built: build/site/index.html"

# What a release would be: built, checked and installed, and published nowhere.
release-check: $(ALL)
	$(BIN)/python tools/release.py

$(LIBRARY):
	@echo "installing telegrad with NumPy, SciPy and rich into $(VENV) (about 230 MB)"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) '.[cli]'
	rm -f $(VENV)/.library-*
	touch $@

$(DOCS): | $(LIBRARY)
	@echo "adding Sphinx, its theme and JAX, which the reference shows (about 480 MB)"
	$(PIP) '.[docs]'
	rm -f $(VENV)/.docs-*
	touch $@

$(ALL): | $(LIBRARY)
	@echo "adding PyTorch, JAX, Ray, the test tools and the benchmarks' peers (2 GB or more, minutes)"
	$(PIP) '.[test,bench,cli,tls,docs]'
	rm -f $(VENV)/.all-* $(VENV)/.docs-*
	touch $@ $(DOCS)

# Of safetensors only a release candidate has a wheel for it, which pip takes if it may not compile.
# Triton, which PyTorch's wheel brings, turns the lock on for the whole process when it is loaded.
$(FREE_ALL):
	@echo "installing telegrad, PyTorch, JAX and the test tools into $(FREE) (5 GB, minutes)"
	$(PYTHON) -c "import sys, sysconfig; sys.exit(None if sysconfig.get_config_var('Py_GIL_DISABLED') \
	  else 'expected a free-threaded Python, got ' + sys.version + ': give one by PYTHON=python3.14t')"
	test -x $(FREE)/bin/python || $(PYTHON) -m venv $(FREE)
	$(FREE)/bin/python $(INSTALL) '.[test-free-threaded,bench,tls,docs]' --only-binary safetensors
	$(FREE)/bin/python -m pip uninstall --quiet --yes triton
	rm -f $(FREE)/.all-*
	touch $@

clean:
	rm -rf $(VENV) $(FREE) .mypy_cache .ruff_cache .pytest_cache build
