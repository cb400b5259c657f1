# Everything a user runs. `make help` lists it; RECIPE chooses the experiment, ARGS overrides any of its settings.
VENV ?= .venv
RECIPE ?= scenes
TABLE ?= 1
WITH ?= mt:en-de
PICTURES ?=
QUERY ?=
PICTURE ?=
GALLERY ?=
ADDRESS ?= 127.0.0.1
HOSTS ?=
PORT ?=
INPUT ?= captions.txt
OUTPUT ?= translated.txt
EXTRA ?=
ARGS ?=
PY := $(VENV)/bin/python
STAMP := $(VENV)/.setup
# What it was set up for stays; else what this machine has.
SET_UP := $(shell { read -r it; echo "$$it"; } 2>/dev/null < $(STAMP))
PYTHON ?= $(or $(word 4,$(SET_UP)),python3)
DEVICE ?= $(or $(firstword $(SET_UP)),$(if $(shell nvidia-smi -L 2>/dev/null),gpu,cpu))
INPUTS := pyproject.toml .ci/constraints.txt
# What the environment was made of; when this changes it is made afresh (faiss-cpu and faiss-gpu overwrite each other).
WANTED := $(DEVICE) $(shell cat $(INPUTS) | cksum) $(PYTHON)
# It holds this checkout's place: an environment of another one would run that one's code.
export CHECKOUT := $(realpath .)
# An editable installation is what is wanted: setuptools' warning about it would look like an error.
# Modules are compiled when they are first imported: most never are, and compiling all takes longer than the rest.
unexport PYTHONDONTWRITEBYTECODE
# pip is brought up to date first: the one that comes with Python 3.11 takes twice as long.
INSTALL = PYTHONWARNINGS="ignore:Editable installation" $(PY) -m pip install --quiet --disable-pip-version-check --progress-bar on --no-compile
export PIP_CONSTRAINT := $(CURDIR)/.ci/constraints.txt
# Before torch starts: waiting threads must not spin on shared cores.
export OMP_WAIT_POLICY := PASSIVE
export TOKENIZERS_PARALLELISM := false
export NO_MKDOCS_2_WARNING := 1
# What a person types is data. Make does not expand it again (`value`), the shell takes it from the environment, and
# ARGS is split into words as a shell does it, but nothing in it is run.
TYPED := RECIPE TABLE WITH PICTURES QUERY PICTURE GALLERY ADDRESS HOSTS PORT INPUT OUTPUT EXTRA ARGS
$(foreach name,$(TYPED),$(eval override $(name) := $$(value $(name))))
define WITH_ARGS
import os, shlex, sys
command = sys.argv[1:]
place = command.index("--") if "--" in command else len(command)  # what is behind it is no option
try:
    command[place:place] = shlex.split(os.environ["ARGS"])
except ValueError as error:
    sys.exit(f"ARGS: {error}; expected words, as on a command line")
os.execv(command[0], command)
endef
export $(TYPED) WITH_ARGS
PYTHON_WITH_ARGS = $(PY) -c "$$WITH_ARGS" $(PY)
PIPELINE = $(PY) -c "$$WITH_ARGS" $(VENV)/bin/bildwort
OPTIONS = --recipe "$$RECIPE"
IN_GALLERY = $(if $(GALLERY),--gallery "$$GALLERY")
AT = --address "$$ADDRESS" $(if $(PORT),--port "$$PORT") $(if $(HOSTS),--hosts "$$HOSTS")

# Extras of pyproject.toml, and which others one of them holds.
EXTRAS := app asian benchmarks cluster dev docs fasttext lora onnx serve sweep translators wandb
HOLDS_dev := app benchmarks cluster docs fasttext lora onnx serve sweep translators
# Add an extra to the environment, once.
define ADD
if [ "$$(cat $(STAMP)-$(1) 2>/dev/null)" != "$(WANTED)" ]; then \
  $(if $(filter fasttext,$(1) $(HOLDS_$(1))),command -v g++ >/dev/null || { echo "fasttext is compiled here: install g++ and Python's headers (Debian: g++ python3-dev)"; exit 1; };) \
  echo "adding the extra $(1) to $(VENV)"; \
  $(INSTALL) -e '.[$(1)]' && for extra in $(1) $(HOLDS_$(1)); do echo "$(WANTED)" > $(STAMP)-$$extra; done; \
fi
endef
# Add the extras that the recipe needs with its settings: `names: the command that adds them`.
NEEDS = needs=$$($(PIPELINE) extras $(1)) || exit 1; \
  case "$$needs" in *": make setup EXTRA="*) $(MAKE) --no-print-directory setup "EXTRA=$${needs%%:*}";; esac

# What targets need; `make setup EXTRA=name` adds the same, or another one.
ADDED := extra-app extra-dev extra-docs extra-serve extra-translators

# RECIPE:TABLE of the results on the overlap of Multi30K and Flickr8K.
OVERLAP := multi30k-flickr8k
CAMPAIGN := $(addprefix $(OVERLAP):,1 2 best wider-en wider-de 4 5) $(addprefix $(OVERLAP)-diverse-attention:,en de second) \
  $(addprefix $(OVERLAP)-mule:,en de fr cs) $(addprefix $(OVERLAP)-mlmme:,en de) $(OVERLAP)-gxn:en

.DEFAULT_GOAL := help
.NOTPARALLEL: # two installations into one environment would meet
.PHONY: help setup $(ADDED) init demo test test-all test-long benchmark benchmark-full check docs docs-serve stage-prepare stage-mmt stage-augment stage-vse stage-rerank sts translate export index search describe app serve screenshots table campaign doctor report draw plots tensorboard clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo '  RECIPE=name chooses a file of pipeline/configs (now: '"$$RECIPE"'); ARGS="--vse.epochs=30" overrides settings'

setup: ## make the virtual environment (every target does it when needed), with PYTHON=python3.12 by that one; EXTRA=name adds an extra of pyproject.toml
	@$(if $(filter-out $(EXTRAS),$(EXTRA)),echo "EXTRA=$$EXTRA: no such extra; there are $(EXTRAS)"; exit 1)
	@is= of=; [ ! -e $(STAMP) ] || { read -r is; read -r of; } < $(STAMP); \
	if [ "$$is" != "$(WANTED)" ] || [ "$$of" != "$$CHECKOUT" ]; then \
	  [ -e $(STAMP) ] || [ -z "$$(ls -A $(VENV) 2>/dev/null)" ] || { echo "$(VENV) was not made by make setup, which would empty it: remove it, or name another (VENV=…)"; exit 1; }; \
	  [ "$$of" = "$$CHECKOUT" ] || [ ! -e "$$of/Makefile" ] || { echo "$(VENV) is the environment of $$of: remove it here, or name another (VENV=…)"; exit 1; }; \
	  $(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || { echo "Python 3.11, 3.12 or 3.13 is needed: make setup PYTHON=python3.11"; exit 1; }; \
	  echo "setting up $(VENV) for $(DEVICE): about 1.6 GB and a minute (gpu: 7 GB)"; \
	  stamp() { printf '%s\n' "$$1" "$$CHECKOUT" > $(STAMP); }; \
	  $(PYTHON) -m venv --clear "$$(cd $(VENV) 2>/dev/null && pwd -P || echo $(VENV))" && stamp "$(DEVICE) is unfinished $(PYTHON)" && \
	  $(INSTALL) --upgrade "pip<27" && $(INSTALL) -e '.[$(DEVICE)]' && stamp "$(WANTED)"; \
	fi
	@$(foreach extra,$(filter $(EXTRAS),$(EXTRA)),{ $(call ADD,$(extra)); } || exit 1;)
	@$(if $(filter setup/,$(MAKECMDGOALS)/$(EXTRA)),echo "next: make demo; with pictures of your own: make init PICTURES=folder")

$(ADDED): extra-%: setup
	@$(call ADD,$*)

init: extra-translators ## look at a folder of your own pictures and captions (PICTURES=…), write a recipe for it
	@$(PIPELINE) init -- "$$PICTURES"

demo: setup ## the main job on rendered pictures, from nothing to BLEU and recall in two languages
	@$(call NEEDS,--recipe scenes)
	@$(PIPELINE) all --recipe scenes

TESTS = @$(PYTHON_WITH_ARGS) -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder

test: extra-dev ## the tests (minutes)
	$(TESTS) -m "not whole and not slow and not benchmark"

test-all: extra-dev ## those and whole runs, servers and several processes, as before each change is merged
	$(TESTS) -m "not slow and not benchmark"

test-long: extra-dev ## the long tests: what the picture is worth on five seeds, kills at every event, faults of real data
	@$(PYTHON_WITH_ARGS) -m pytest -q -m slow

benchmark: extra-dev ## speed against the published form of the same, side by side
	@$(PYTHON_WITH_ARGS) -m pytest -q -m benchmark

benchmark-full: extra-dev ## time `multi30k` at its true scale, on a GPU best (ARGS="FOLDER --steps 300"; Multi30K's text)
	@$(PYTHON_WITH_ARGS) -m tests.benchmarks.full

check: extra-dev ## lint, format and types; the site is built
	@$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check . && $(VENV)/bin/mypy
	@$(MAKE) --no-print-directory docs

docs: extra-docs ## the documentation as a site, .docs/site/index.html
	@$(PY) -m mkdocs build --quiet --strict --config-file .docs/mkdocs.yml && echo ".docs/site/index.html" >&2

docs-serve: extra-docs ## show the site while its pages are edited, http://127.0.0.1:8002
	@$(PY) -m mkdocs serve --config-file .docs/mkdocs.yml --dev-addr "$$ADDRESS:$${PORT:-8002}"

stage-prepare: setup ## corpus -> caption table, parallel table, region store, data report
	@$(PIPELINE) prepare $(OPTIONS)

stage-mmt: setup ## (prepare and) train translators: NMT, then MT and MMT, in each direction
	@$(call NEEDS,$(OPTIONS))
	@$(PIPELINE) mmt $(OPTIONS)

stage-augment: setup ## translate training captions into synthetic ones
	@$(PIPELINE) augment $(OPTIONS)

stage-vse: setup ## train and test retrieval models
	@$(call NEEDS,$(OPTIONS))
	@$(PIPELINE) vse $(OPTIONS)

stage-rerank: setup ## tune re-ranked translators (mmt.rerank) and compare features
	@$(call NEEDS,$(OPTIONS))
	@$(PIPELINE) rerank $(OPTIONS)

sts: setup ## sentence similarity of every trained retrieval model: Pearson's r on the recipe's sts.sets
	@$(PIPELINE) sts $(OPTIONS)

translate: setup ## lines of a file (INPUT) into another language (WITH=mt:en-de), line n to line n of OUTPUT
	@$(PIPELINE) translate --with "$$WITH" --input "$$INPUT" --output "$$OUTPUT" $(OPTIONS)

export: setup ## the best trained model as a folder that can be moved (artifacts/RECIPE/model)
	@$(PIPELINE) export $(OPTIONS)

index: setup ## bring a gallery (GALLERY=…) up to date: the corpus's pictures, or those of a folder (PICTURES=…)
	@$(PIPELINE) index $(if $(PICTURES),--pictures "$$PICTURES") $(IN_GALLERY) $(OPTIONS)

search: setup ## the pictures nearest to a sentence (QUERY="…")
	@$(PIPELINE) search $(IN_GALLERY) $(OPTIONS) $(if $(QUERY),-- "$$QUERY")

describe: setup ## a picture's own captions and similar ones (PICTURE=…), in every language
	@$(PIPELINE) describe $(IN_GALLERY) $(OPTIONS) $(if $(PICTURE),-- "$$PICTURE")

app: extra-app ## a page that searches a gallery by words and pictures (GALLERY=…), on this machine alone (ADDRESS=…; HOSTS="names" that it is called by)
	@$(PIPELINE) app $(AT) $(OPTIONS) $(if $(GALLERY),-- "$$GALLERY")

serve: extra-serve ## answer programs over HTTP: search, describe, embed, translate (GALLERY=…; ADDRESS=… and HOSTS=… as for app)
	@$(PIPELINE) serve $(AT) $(OPTIONS) $(if $(GALLERY),-- "$$GALLERY")

screenshots: extra-dev ## the README's pictures of the page, of the scenes alone (needs chromium and its driver)
	@$(PY) -m tests.screenshots

table: setup ## a table of the paper (TABLE=1): trains what is missing, prints ours beside the published figures
	@$(call NEEDS,--table "$$TABLE" $(OPTIONS))
	@$(PIPELINE) table --table "$$TABLE" $(OPTIONS)

campaign: setup ## every table of the papers on the overlap, one after the other: days (ARGS=--dry-run shows what is left to train)
	@for each in $(CAMPAIGN); do \
	  echo "table $${each#*:} of $${each%%:*}"; \
	  $(MAKE) --no-print-directory table "TABLE=$${each#*:}" "RECIPE=$${each%%:*}" || exit 1; \
	done

doctor: setup ## what is in a recipe's data and what is wrong with it, with file and line; changes nothing
	@$(PIPELINE) doctor $(OPTIONS)

report: setup ## tables of all that has been run
	@$(PIPELINE) report $(OPTIONS)

draw: setup ## what trained retrieval models look at, word by word, and their joint space by t-SNE, as pictures
	@$(PIPELINE) draw $(OPTIONS)

plots: setup ## the READMEs' plots of recorded figures (pipeline/results), into .screenshots
	@$(PYTHON_WITH_ARGS) -m tests.recorded_plots

tensorboard: setup ## the training curves (lightning_logs), http://127.0.0.1:6006 (PORT=6006); opens a browser where there is a display
	@if [ "$$DISPLAY$$WAYLAND_DISPLAY" ] || [ "$$(uname)" = Darwin ]; then \
	  sleep 8; $(PY) -m webbrowser "http://$$ADDRESS:$${PORT:-6006}"; \
	fi > /dev/null 2>&1 &
	@$(PIPELINE) tensorboard --address "$$ADDRESS" $(if $(PORT),--port "$$PORT")

clean: ## delete all that was trained: artifacts and dashboards (the environment stays)
	rm -rf artifacts lightning_logs/*/
