#!/usr/bin/env bash
# Runs the recorder under ThreadSanitizer, and once more with a memory ordering removed, which must be detected: `cargo xtask races`.
#
# The recorder is built twice and its dependencies once, instrumented, in a target folder of their own. The sanitizer is the compiler's; the pinned
# stable compiler offers it if RUSTC_BOOTSTRAP=1 is set. The standard library is not instrumented, so the tests are written not to depend on its
# synchronisation. Not all interleavings are explored; loom does that, in the recorder's own tests.
set -uo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../../../.." || exit
host=$(rustc -vV | sed -n 's/^host: //p')
compgen -G "$(rustc --print sysroot)/lib/rustlib/$host/lib/librustc-*rt.tsan.a" > /dev/null || {
    echo "this compiler has no ThreadSanitizer for this machine"
    exit 77
}
export RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer"
export TSAN_OPTIONS="suppressions=$PWD/crates/record/tests/races/suppressions.txt" CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/races
races() { cargo test --locked --package probe-sync-record --test races --target "$host" "$@"; }

races || exit 1
# By the profile: as RUSTFLAGS they would have all dependencies built again.
planted=$(races -Zprofile-rustflags --config 'profile.dev.package.probe-sync-record.rustflags = ["--cfg=probe_sync_planted"]' 2>&1)
status=$?
if [[ $status == 0 || $planted != *"WARNING: ThreadSanitizer: data race"* ]]; then
    echo "$planted"
    echo "error: an ordering was removed and nothing was detected"
    exit 1
fi
echo "1 passed, 0 failed, 0 skipped: the planted race is detected"
