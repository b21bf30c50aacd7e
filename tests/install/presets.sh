#!/usr/bin/env bash
# Each preset configures: those of CUDA where there is nvcc, tsan where there is clang++ with its sanitizers (on Ubuntu they are a
# package of their own, which scripts/setup installs for tsan).
# Usage: presets.sh <Reel's sources> <work>
set -euo pipefail
work=$2/presets
cd "$1"
rm -rf "$work"
mkdir -p "$work"
links_tsan() { echo 'int main() {}' | clang++ -fsanitize=thread -x c++ - -o "$work/tsan-program" 2>/dev/null; }
for preset in cpu debug asan tsan cuda cuda-release emulated; do
  case $preset in
    tsan) needs=clang++ ;;
    cuda*) needs=nvcc ;;
    *) needs=cmake ;;
  esac
  if ! command -v $needs >/dev/null || { [[ $preset == tsan ]] && ! links_tsan; }; then
    cmake --list-presets | grep -q "\"$preset\""
    echo "$preset: listed, not configured without $needs"
    continue
  fi
  cmake --preset $preset -B "$work/$preset" -DREEL_TESTS=OFF -DREEL_BENCHMARKS=OFF -DREEL_EXAMPLES=OFF >"$work.log" 2>&1 ||
    { cat "$work.log" >&2; exit 1; }
  echo "$preset: configures"
done
cmake --list-presets=workflow | grep -q '"cpu"'
rm -rf "$work"
