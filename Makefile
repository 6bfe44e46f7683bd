# `make` lists the commands. Every command creates the environments that it needs.

# A lane is one version of TensorFlow with its Python (lanes.py). ARGS are arguments for pytest or
# for the program of a command, for example: make test LANE=2.15 ARGS="-k sparse"
ARGS ?=
LANE ?=
TOOLS := .venv/bin/python
NOX = $(TOOLS) -m nox --session
# If all lanes run, they divide long tests among themselves. A single lane runs them completely.
TURNS := $(if $(LANE)$(findstring --turns,$(ARGS)),,--turns)
# The newest and the oldest lane come first: they take longest, and the handover waits for them.
NAMES := $(shell python3 -c 'import lanes; print(*(lane.name for lane in reversed(lanes.LANES)))')
ENDS := $(firstword $(NAMES)) $(lastword $(NAMES))
TESTED := $(or $(LANE),$(ENDS) $(filter-out $(ENDS),$(NAMES)))
lanes = $(if $(LANE),$(foreach lane,$(LANE),"$(1)($(lane))"),$(2))

.DEFAULT_GOAL := help
.PHONY: help demo environments test tested-handover test-full test-version versions oldest-keras corpus corpus-check clients addons horovod handover migration-demo prove-demo gallery matrix scripts bits bits-arm native-differences native-wheel release-check workflows sanitize mutations coverage seconds rules vectors leave conformance docs docs-open docs-test \
	completions lint format bench bench-leave readme doctor clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(TOOLS) ## train on a year of real flights
	$(NOX) demo -- $(ARGS)

environments: $(TOOLS) ## install TensorFlow in the environments of all lanes, two at a time
	python3 lanes.py list | cut -d' ' -f1 | xargs -P 2 -I NAME $(NOX) "prepare(NAME)"

test: $(TESTED:%=test-on-%) tested-handover ## run the tests on every lane (LANE=1.15: on one)
	$(NOX) report -- $(TESTED) handover

# `report` fails if one of these fails: until then, the other lanes are tested.
test-on-%: $(TOOLS)
	-$(NOX) "test($*)" -- $(TURNS) $(ARGS)

tested-handover: $(patsubst %,test-on-%,$(filter $(ENDS),$(TESTED)))
	-$(NOX) handover -- $(TESTED)

test-full: ## run every combination of parameters, and the slow tests, on one lane (LANE=1.15: on this one)
	$(MAKE) test TURNS="--full $(TURNS)"

coverage: $(TOOLS) ## print which lines and branches the tests of all lanes reach
	$(NOX) coverage -- $(TURNS) $(ARGS)

seconds: $(TOOLS) ## record the durations of long tests from the last make test
	$(NOX) seconds

test-version: $(TOOLS) ## run the tests on another version: TF=2.12.1 PYTHON=3.11
	@test -n "$(TF)" -a -n "$(PYTHON)" || { echo "usage: make test-version TF=2.12.1 PYTHON=3.11"; exit 2; }
	LEGACY_OPT_ALL_LANES=1 LEGACY_OPT_TENSORFLOW=$(TF) LEGACY_OPT_PYTHON=$(PYTHON) $(NOX) test report -- $(ARGS)

versions: $(TOOLS) ## run the tests on each release between the lanes (ONLY=2.12.1: on one)
	LEGACY_OPT_ALL_LANES=1 $(NOX) versions report

oldest-keras: $(TOOLS) ## run the tests of the Keras 3 bridge with the oldest Keras 3
	$(NOX) oldest_keras report -- $(ARGS)

corpus: $(TOOLS) ## write the files of one TensorFlow into tests/data/corpus: TF=2.7.4 PYTHON=3.9
	@test -n "$(TF)" -a -n "$(PYTHON)" || { echo "usage: make corpus TF=2.7.4 PYTHON=3.9"; exit 2; }
	LEGACY_OPT_ALL_LANES=1 LEGACY_OPT_TENSORFLOW=$(TF) LEGACY_OPT_PYTHON=$(PYTHON) $(NOX) corpus

corpus-check: $(TOOLS) ## read the files of every TensorFlow on every lane, and train on (LANE=2.15: on one)
	$(NOX) $(call lanes,corpus_check,corpus_check) report -- $(ARGS)

clients: $(TOOLS) ## train with tf-slim, deepctr and dynamic embeddings on the lanes where they install
	$(NOX) $(call lanes,clients,clients) -- $(ARGS)

addons: $(TOOLS) ## compare with the optimizers of TensorFlow Addons on lanes 2.10 and 2.15
	$(NOX) $(call lanes,addons,addons) -- $(ARGS)

horovod: $(TOOLS) ## build Horovod, and compare its trainings with one process
	$(NOX) $(call lanes,horovod,horovod) -- $(ARGS)

handover: $(TOOLS) ## move a checkpoint from lane 1.15 to 2.21 and back
	$(NOX) handover

migration-demo: $(TOOLS) ## move a training from TensorFlow 1.15 to Keras 3, and back
	$(NOX) migration_demo -- $(ARGS)

prove-demo: $(TOOLS) ## record a training on TensorFlow 1.15, and prove it on 2.21, in Keras, NumPy and PyTorch
	$(NOX) prove_demo -- $(ARGS)

gallery: $(TOOLS) ## measure and draw the pictures of docs/gallery.md (ARGS=--draw: only draw; ARGS=speed: one)
	$(NOX) gallery -- $(ARGS)

matrix: $(TOOLS) ## measure how exact the Keras bridge is (LANE=2.15: here alone); write its table in docs/keras.md
	LEGACY_OPT_ALL_LANES=1 $(NOX) $(call lanes,matrix,matrix) matrix_page

scripts: $(TOOLS) ## train old scripts on every lane; write their losses into docs/old_scripts.md
	LEGACY_OPT_ALL_LANES=1 $(NOX) scripts

bits: $(TOOLS) ## check that native kernels compute the same bits on all lanes, threads and processors
	$(NOX) bits

bits-arm: $(TOOLS) ## check that native kernels compute the same bits on ARM64, in an emulator
	$(NOX) bits_arm

rules: $(TOOLS) ## record the rules of the catalogue into legacy_opt/recorded/rules
	$(NOX) rules

vectors: $(TOOLS) ## draw the vectors, the proofs of the package legacy-opt-vectors
	$(NOX) vectors

leave: $(TOOLS) ## test recorded rules in NumPy, PyTorch, JAX and Keras, without TensorFlow
	$(NOX) leave report -- $(ARGS)

conformance: $(TOOLS) ## replay the optimizers of other libraries; write docs/conformance.md (ARGS="jax timm": some)
	$(NOX) conformance -- $(ARGS)

native-differences: $(TOOLS) ## print how often native kernels differ from TensorFlow, for docs/native.md
	$(NOX) native_differences

release-check: $(TOOLS) ## build all packages of a release, and try them (ARGS=--final: no blanks; ARGS=--quick)
	$(NOX) release_check -- $(ARGS)

workflows: $(TOOLS) ## validate .github, and run the commands of its workflows (ARGS=lint: those with this text)
	$(NOX) workflows -- $(ARGS)

native-wheel: $(TOOLS) ## build legacy-opt-native for machines without a compiler (ARGS=aarch64: for ARM64)
	$(NOX) native_wheel -- $(ARGS)

sanitize: $(TOOLS) ## run native kernels under the sanitizers for addresses and undefined behaviour
	$(NOX) sanitize

mutations: $(TOOLS) ## break the Keras bridges (2.15, 2.21) in copies; the tests must fail
	$(NOX) $(call lanes,mutations,"mutations(2.15)" "mutations(2.21)")

bench: $(TOOLS) ## measure the speed on lanes 1.15 and 2.21 (LANE=2.10: on another)
	$(NOX) $(call lanes,bench,"bench(1.15)" "bench(2.21)") -- $(ARGS)

bench-leave: $(TOOLS) ## measure recorded rules in PyTorch and JAX, as ratios to the libraries' optimizers
	$(NOX) bench_leave -- $(ARGS)

docs: $(TOOLS) ## build the site of the documentation, .nox/site/html
	$(NOX) docs

docs-open: $(TOOLS) ## build the site, and open it in a browser
	$(NOX) docs_open

docs-test: $(TOOLS) ## build the site, and test it in Chromium (Debian's chromium, chromium-driver)
	$(NOX) docs_test -- $(ARGS)

completions: $(TOOLS) ## write the scripts with which shells complete legacy-opt's words
	$(TOOLS) tests/tools/completions.py

lint: $(TOOLS) ## check the style and the types of the code
	$(NOX) lint

format: $(TOOLS) ## format the code, and fix what ruff can fix
	$(TOOLS) -m ruff format . && $(TOOLS) -m ruff check --fix . && $(TOOLS) -m ruff format .

readme: ## write the table of lanes into README.md
	python3 lanes.py readme

clean: ## remove the environments, caches and built packages
	rm -rf .venv .nox .pytest_cache .ruff_cache build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(TOOLS): Makefile
	@for python in python3 python3.13 python3.12 python3.11 python3.10 /usr/bin/python3; do \
		if $$python -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 8))' 2>/dev/null; then \
			set -e; \
			$$python -m venv --clear .venv; \
			$(TOOLS) -m pip install --disable-pip-version-check nox 'ruff==0.17.*' 'basedpyright==1.40.*' 'shtab==1.13.*'; \
			touch $(TOOLS); \
			exit 0; \
		fi; \
	done; \
	echo "No Python 3.8 or newer with venv was found."; exit 1
