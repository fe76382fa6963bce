# Every target sets up all it needs from a fresh clone: a .venv, made once and
# kept while the declared dependencies (pyproject.toml) stay the same.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed-$(shell cksum < pyproject.toml | tr ' ' '-')
THREADS := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
# Bytecode is kept whatever the caller's environment says: the tests start hundreds of processes,
# and each would compile all of telegrad again. The benchmarks time the import beside that of a
# PyTorch that is compiled.
BYTECODE := PYTHONDONTWRITEBYTECODE=

.PHONY: demo test soak fuzz bench examples lint clean

demo: $(STAMP)
	$(BIN)/python -m telegrad.demo

test: lint
	$(THREADS) $(BYTECODE) $(BIN)/python -m pytest

# Hours instead of minutes: many more seeds of the simulations, a thousand contexts a trainer.
soak: $(STAMP)
	$(THREADS) $(BYTECODE) TELEGRAD_SOAK=1 $(BIN)/python -m pytest --timeout 36000 --hypothesis-profile=large -s tests

# Coverage-guided, of all that parses what a peer sent; needs the extra `fuzz`.
fuzz: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check '.[fuzz]'
	$(THREADS) $(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),10)

lint: $(STAMP)
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/mypy

bench: $(STAMP)
	$(THREADS) $(BYTECODE) $(BIN)/python -m benchmarks

examples: $(STAMP)
	for example in examples/*.py; do $(THREADS) $(BIN)/python $$example || exit 1; done

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,bench,cli,tls]'
	rm -f .venv/.installed-*
	touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache build
