#!/usr/bin/env bash
# Installs Reel as a static or shared library under <work>/<flavour>.
# Usage: install.sh static...|shared... <source> <finished build tree> <work> <compiler> <settings for cmake>...
# The objects of the finished tree are linked again, not compiled again. The installation is moved after it is made, and
# no file in it may name the folders it came from.
set -euo pipefail
flavour=$1 source=$2 objects=$3 work=$4 compiler=$5
shared=OFF && [[ $flavour == shared* ]] && shared=ON

rm -rf "${work:?}/$flavour" "$work/$flavour-first"
cmake -S "$source" -B "$work/$flavour-build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="$compiler" \
  -DBUILD_SHARED_LIBS=$shared -DREEL_OBJECTS_FROM="$objects" \
  -DREEL_TESTS=OFF -DREEL_EXAMPLES=OFF -DREEL_BENCHMARKS=OFF "${@:6}"
cmake --build "$work/$flavour-build"
cmake --install "$work/$flavour-build" --prefix "$work/$flavour-first"
mv "$work/$flavour-first" "$work/$flavour"

if grep -rIl -e "$source" -e "$work" "$work/$flavour"; then
  echo "these installed files name the folders of the build"
  exit 1
fi
