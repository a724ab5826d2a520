# `make run` is all it takes; the others are for development.
# ARGS goes to the farm, as in: make run ARGS="--port 8092"

PACKAGES = api cli configs infra models workers
LOCKED = pyproject.toml setup.py requirements/lock.txt requirements/torch.txt requirements/install.sh
UP = .venv/bin/speechmill up --hello hello.wav

# Modules are compiled when they are first imported (install.sh), which must then be kept.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run demo test check lock dist clean

run: .venv/run.stamp ## set up, start the farm on port 8091, speak into hello.wav, serve until Ctrl-C
	@exec $(UP) $(ARGS)

demo: .venv/run.stamp ## the same, and stop once it has spoken
	@exec $(UP) --once $(ARGS)

test: check ## set up, lint, check types, run every test; ARGS chooses some
	@exec .venv/bin/pytest $(if $(ARGS),$(ARGS),--numprocesses 2 --dist loadfile --no-loadscope-reorder)

check: .venv/test.stamp ## lint and check types
	@.venv/bin/ruff check --quiet
	@mkdir -p build/mypy && ln -sfn ../.. build/mypy/speechmill # mypy cannot follow the editable install
	@MYPYPATH=build/mypy .venv/bin/mypy $(PACKAGES:%=-p speechmill.%)

.venv/run.stamp: $(LOCKED)
	@requirements/install.sh worker
	@touch $@

.venv/test.stamp: $(LOCKED)
	@requirements/install.sh worker,test,clients
	@touch $@ .venv/run.stamp

lock: .venv/run.stamp ## choose exact versions of everything anew
	@.venv/bin/python -m venv build/lock
	@build/lock/bin/pip install --quiet --disable-pip-version-check uv
	@requirements/lock.sh build/lock/bin/uv

dist: .venv/run.stamp ## wheel and sdist into dist/
	@.venv/bin/python -m venv build/dist
	@build/dist/bin/pip install --quiet --disable-pip-version-check build
	@build/dist/bin/python -m build

clean: ## remove the environment and everything built, but no data
	@rm -rf .venv build dist *.egg-info
