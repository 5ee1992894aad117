#!/usr/bin/env bash
# Makes packages of the command in target/package, with their SHA256SUMS: `cargo xtask package [KIND]`, which provides the tools on PATH.
#
#     bench/install/package.sh KIND...      # tarball, deb, deb-openmpi, wheel
#
# What has no MPI is linked by zig against GLIBC, so that it runs on distributions older than the one that builds it. cargo-deb makes the Debian
# packages, as crates/cli/Cargo.toml describes them; maturin makes the wheel. Tarball and Debian packages carry the manual pages and completions that
# the built program itself prints.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
GLIBC=2.28 # Debian 10, RHEL 8 and what is newer; Rust itself asks for 2.17.
machine=$(uname -m)
version=$(cargo pkgid --package probe-sync-cli | sed 's/.*[#@]//')
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
mkdir -p target/package
folder=$(realpath target/package)

# Builds the command in a target folder, with features and the system's libraries or without both, and puts it without debug information, its manual
# pages and completions where the assets of the Debian packages are looked for.
stage() {
    local stage=$1/release/packaged built=$1/release
    if [[ -n ${2:-} ]]; then
        CARGO_TARGET_DIR=$1 cargo build --release --locked --package probe-sync-cli --features "$2"
    else
        CARGO_TARGET_DIR=$1 cargo zigbuild --release --locked --package probe-sync-cli --target "$machine-unknown-linux-gnu.$GLIBC"
        built=$1/$machine-unknown-linux-gnu/release
    fi
    rm -rf "$stage"
    mkdir -p "$stage/bin" "$stage/completions"
    strip -o "$stage/bin/probe_sync" "$built/probe_sync"
    "$built/probe_sync" man --output "$stage/man"
    gzip -9n "$stage"/man/*
    "$built/probe_sync" completions bash > "$stage/completions/probe_sync"
    "$built/probe_sync" completions zsh > "$stage/completions/_probe_sync"
    "$built/probe_sync" completions fish > "$stage/completions/probe_sync.fish"
}

# The same bytes from the same sources and tools: sorted, without owners, at the time of the sources' last commit.
tarball() {
    stage "$target"
    local name=probe_sync-$version-$machine-linux-gnu packaged=$target/release/packaged
    local tree=$folder/$name
    rm -rf "$tree"
    install -D "$packaged/bin/probe_sync" "$tree/bin/probe_sync"
    install -D -m 644 -t "$tree/share/man/man1" "$packaged"/man/*
    install -D -m 644 -t "$tree/share/bash-completion/completions" "$packaged/completions/probe_sync"
    install -D -m 644 -t "$tree/share/zsh/site-functions" "$packaged/completions/_probe_sync"
    install -D -m 644 -t "$tree/share/fish/vendor_completions.d" "$packaged/completions/probe_sync.fish"
    install -D -m 644 -t "$tree/share/doc/probe_sync" README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT
    tar --sort=name --owner=0 --group=0 --numeric-owner --use-compress-program="gzip -9n" --mtime="@$(git log -1 --format=%ct || echo 0)" \
        -cf "$tree.tar.gz" -C "$folder" "$name"
}

# Arguments: target folder, features, and cargo-deb's options. Each variant has a target folder of its own: the programs have one name.
deb() {
    stage "$1" "$2"
    CARGO_TARGET_DIR=$1 cargo-deb deb --no-build --locked --package probe-sync-cli --output "$folder/" "${@:3}"
}

# The Python package, and the command next to Python's own.
wheel() {
    stage "$target"
    local scripts=crates/python/wheel_data/scripts
    trap 'rm -rf crates/python/wheel_data/scripts' EXIT
    install -D "$target/release/packaged/bin/probe_sync" "$scripts/probe_sync"
    maturin build --profile wheel --locked --zig --compatibility "manylinux_${GLIBC/./_}" --manifest-path crates/python/Cargo.toml \
        --interpreter "$(dirname "$(command -v maturin)")/python" --out "$folder"
}

for kind in "$@"; do
    case $kind in
        tarball) tarball ;;
        deb) deb "$target" "" ;;
        deb-openmpi) deb "$folder/target-openmpi" mpi,hwloc --variant openmpi ;;
        wheel) wheel ;;
        *) echo "no kind of package: $kind" >&2 && exit 2 ;;
    esac
done
cd "$folder"
find . -maxdepth 1 -type f \( -name '*.tar.gz' -o -name '*.deb' -o -name '*.whl' \) -printf '%f\n' | sort | xargs sha256sum | tee SHA256SUMS
