#!/bin/sh
# Tests with real threads under ThreadSanitizer, where a nightly toolchain is installed.
#
# The sanitizer only knows what has been compiled with it. With the source of the
# standard library (rustup component add --toolchain nightly rust-src) everything is,
# and all tests with threads run. Without it the slow path of the standard library's
# locks is unseen, and whatever they guard would be reported: then only those tests run
# in which threads meet on the atomic word, or the slots of keys, and nowhere else.
#
# The instruction that reads and replaces a slot is hidden from the sanitizer, which
# sees slots where they are handled in the way that works on every platform; the tests
# of keys do both.
set -eu
cd "$(dirname "$0")/.."

if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "tsan: no nightly toolchain, nothing was checked"
    exit 0
fi

target=$(rustc +nightly -vV | sed -n 's/^host: //p')
export RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer"
export TSAN_OPTIONS="suppressions=$PWD/checks/tsan.suppressions"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/tsan"

# The harness sends results over a channel when it runs tests in threads of its own.
if [ -d "$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library" ]; then
    exec cargo +nightly test --package suimon --features tokio --target "$target" -Zbuild-std \
        --test threads --test keyed_threads --test executors --test cases --test edges -- --test-threads 1
fi
echo "tsan: no source of the standard library; only the lock-free decisions are checked"
exec cargo +nightly test --package suimon --features tokio --target "$target" --test threads --test keyed_threads -- \
    --test-threads 1 threads_that_only
