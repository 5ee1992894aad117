#!/usr/bin/env bash
# Finds or installs what the tests of the report page need: Debian's Chromium with its driver, and axe-core, which npm fetches into target/browser.
#
# Ends with 77 and the reason as its last line where there is no browser. Without axe-core everything else is still tested.
set -uo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
folder=${CARGO_TARGET_DIR:-target}/browser
if [[ ! -e $folder/node_modules/axe-core/axe.min.js ]]; then
    mkdir -p "$folder"
    timeout 120 npm install --no-audit --no-fund --no-save --ignore-scripts --prefix "$folder" axe-core@4 || echo "skipped: axe-core cannot be fetched by npm"
fi
there() { command -v chromium > /dev/null && command -v chromedriver > /dev/null; }
install() { timeout 300 apt-get --quiet --yes --no-install-recommends -o DPkg::Lock::Timeout=60 install chromium chromium-driver; }
there || ((UID)) || install || { apt-get --quiet update && install; }
there || { echo "no browser; as root: apt-get install chromium chromium-driver" && exit 77; }
