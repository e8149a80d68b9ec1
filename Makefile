# The two commands of CI, and of a person: `make test` and `make check`.
# Both install what is missing; nothing but Rust and make has to be there.

CARGO ?= cargo
# A short smoke that does the same each time; `make fuzz FUZZ=-max_total_time=600` searches.
FUZZ ?= -seed=1 -runs=300000
FUZZ_TARGETS := policy_text decide

.PHONY: all test models tsan check fmt clippy doc deny features no-std fuzz bench mutants python cargo-hack cargo-deny cargo-fuzz

all: check test

## Every test, the queue under a model checker, threads under a sanitizer, and a
## short smoke of the fuzz targets.
test: python
	$(CARGO) test --workspace --all-features
	$(MAKE) models tsan fuzz

# The schedules of shuttle in place of the machine's; a folder of its own, so that
# the other flags do not build everything anew.
models:
	RUSTFLAGS="--cfg shuttle" CARGO_TARGET_DIR=target/shuttle $(CARGO) test --package suimon --test models --test keyed_models

tsan:
	checks/tsan.sh

## fmt, clippy (each crate on its own), docs, licences, feature combinations, a build without std.
check: fmt clippy doc deny features no-std

fmt:
	$(CARGO) fmt --all --check
	cd checks/no_std && $(CARGO) fmt --check
	cd fuzz && $(CARGO) fmt --check
	cd bench && $(CARGO) fmt --check

# One crate at a time, so that features of one do not hide a lint of another.
clippy:
	for crate in $(notdir $(wildcard crates/*)); do \
		$(CARGO) clippy --package $$crate --all-targets --all-features -- -D warnings || exit 1; \
	done

doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --all-features

deny: cargo-deny
	$(CARGO) deny --workspace check bans licenses sources

features: cargo-hack
	$(CARGO) hack check --workspace --feature-powerset --depth 2 --no-dev-deps

# The program has no standard library to link, and decides something.
no-std:
	cd checks/no_std && $(CARGO) run --release --quiet

# The sanitizer instrumentation is unstable, hence the bootstrap switch; it
# changes nothing but what the compiler lets itself be asked for.
fuzz: cargo-fuzz
	for target in $(FUZZ_TARGETS); do \
		mkdir -p fuzz/corpus/$$target fuzz/seeds/$$target && \
		RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run --sanitizer none $$target fuzz/corpus/$$target fuzz/seeds/$$target -- \
			-dict=fuzz/policy.dict $(FUZZ) -timeout=20 -rss_limit_mb=2048 -verbosity=0 || exit 1; \
	done

## Speed; not part of CI.
bench:
	$(CARGO) bench --package suimon-server --bench replay
	cd bench && $(CARGO) bench

## Flips comparisons, roundings, clamps and orders in the core; each must fail a test.
mutants: python
	python3 checks/mutants.py

python:
	@command -v python3 >/dev/null || (apt-get update && apt-get install --yes --no-install-recommends python3)

cargo-hack cargo-deny cargo-fuzz:
	@command -v $@ >/dev/null || $(CARGO) install --locked $@
