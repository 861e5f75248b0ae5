#!/usr/bin/env bash
# Installs the package whose session store is tested, at the version that README.md speaks of, into `installed/` beside this
# file. Nothing of it runs while it is installed. Needs npm and a registry.
#
#   scripts/adapters/pi/install.sh            the version below
#   scripts/adapters/pi/install.sh VERSION    another one
set -euo pipefail

readonly VERSION=${1:-0.85.0}
readonly TO=$(dirname "${BASH_SOURCE[0]}")/installed

mkdir -p "$TO"
# The package says that it wants a later Node.js than its session store does.
npm install --prefix "$TO" --no-save --no-package-lock --ignore-scripts --no-audit --no-fund --loglevel=error \
    "@earendil-works/pi-coding-agent@$VERSION"
