#!/usr/bin/env bash
# Feeds arbitrary bytes to every parser: `cargo xtask fuzz`.
#
#     fuzz/run.sh SECONDS [TEXT]      # for all targets together, or for those whose name contains the text
#
# libFuzzer's coverage comes from flags that the stable compiler has: what cargo-fuzz passes, less what needs a nightly compiler. There is no sanitizer:
# those need nightly, and our own code in the parsers is safe Rust. Without a C++ compiler, which libFuzzer's runtime needs, mutations of the seeds run
# for the given time instead. What libFuzzer learns stays in target/fuzz/corpus, what breaks a target in target/fuzz/artifacts. Inputs are not
# minimised; libFuzzer does that: FUZZ_TARGET=NAME target/fuzz/HOST/fuzz/any -minimize_crash=1 FILE.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=$1
mapfile -t targets < <(find fuzz/corpus -mindepth 1 -maxdepth 1 -name "*${2:-}*" -printf '%f\n' | sort)
((${#targets[@]})) || { echo "error: no target's name contains \"$2\""; exit 1; }
host=$(rustc -vV | sed -n 's/^host: //p')
if ! command -v "${CXX:-c++}" > /dev/null || [[ $host != *linux* ]]; then
    echo "skipped fuzz, libFuzzer: no C++ compiler (${CXX:-c++}); mutations run instead"
    if ((${#targets[@]} == 1)); then export FUZZ_TARGET=${targets[0]}; fi
    FUZZ_SECONDS=$seconds exec cargo test --locked --package probe-sync-fuzz -- --nocapture
fi

folder=${CARGO_TARGET_DIR:-target}/fuzz # The flags would have everything else built again.
profile=fuzz
if ((seconds < 600)); then profile=fuzz-short; fi # Longer than that it pays to build faster targets.
flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg=fuzzing"
# Naming the target, even the host, keeps the flags away from build scripts, which could not be linked with them.
CARGO_TARGET_DIR=$folder RUSTFLAGS=$flags \
    cargo build --locked --package probe-sync-fuzz --features libfuzzer --target "$host" --profile "$profile"

share=$((seconds / ${#targets[@]}))
passed=0 failed=0
for target in "${targets[@]}"; do
    echo "== fuzz, $target"
    mkdir -p "$folder/corpus/$target" "$folder/artifacts/$target"
    if FUZZ_TARGET=$target "$folder/$host/$profile/any" -max_total_time=$((share > 1 ? share : 1)) -seed=1 -timeout=10 -rss_limit_mb=512 \
        -print_final_stats=1 -artifact_prefix="$folder/artifacts/$target/" "$folder/corpus/$target" "fuzz/corpus/$target" > "$folder/$target.log" 2>&1; then
        passed=$((passed + 1))
        grep number_of_executed_units "$folder/$target.log"
    else
        failed=$((failed + 1))
        tail -n 60 "$folder/$target.log"
    fi
done
echo "$passed passed, $failed failed, 0 skipped"
exit $((failed > 0))
