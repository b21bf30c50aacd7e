#!/usr/bin/env bash
# Builds and runs a program that uses Reel.
# Usage: consume.sh <how> <work> <compiler> <settings for cmake>...
set -euo pipefail
how=$1 work=$2 compiler=$3
here=$(dirname "$0")

rm -rf "${work:?}/$how"
cmake -S "$here" -B "$work/$how" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="$compiler" "${@:4}"
cmake --build "$work/$how"
"$work/$how/consumer"
