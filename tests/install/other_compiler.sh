#!/usr/bin/env bash
# A compiler takes the library's files without a warning; it writes no code here.
# Usage: other_compiler.sh <Reel's sources> <work> <compiler> <REEL_UNITY>
set -euo pipefail
source=$1 work=$2/other_compiler_$4 compiler=$3 unity=$4
if ! command -v "$compiler" >/dev/null; then
  echo "no $compiler"
  exit 77
fi
rm -rf "$work"
mkdir -p "$work"
cat >"$work/syntax_only" <<'LAUNCHER'
#!/bin/sh
case "$*" in *-emit-pch*) exec "$@" ;; esac
exec "$@" -fsyntax-only
LAUNCHER
chmod +x "$work/syntax_only"
cmake -S "$source" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_CXX_COMPILER_LAUNCHER="$work/syntax_only" -DCMAKE_DISABLE_PRECOMPILE_HEADERS=OFF \
  -DCMAKE_COMPILE_WARNING_AS_ERROR=ON -DREEL_CUDA=OFF -DREEL_UNITY="$unity" -DREEL_TESTS=OFF -DREEL_EXAMPLES=OFF -DREEL_BENCHMARKS=OFF \
  >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
cd "$work/build"
mapfile -t objects < <(sed "s|^$PWD/||" reel-objects.txt)
if [[ $unity == ON ]]; then
  mapfile -t objects < <(printf '%s\n' "${objects[@]}" | grep /Unity/)  # the others are as they ever were
  [[ ${#objects[@]} -gt 5 ]]
else
  [[ ${#objects[@]} -gt 200 ]]
fi || { echo "only ${#objects[@]} files are listed" >&2; exit 1; }
cmake --build . -j2 --target "${objects[@]}" >"$work/log" || { grep -v '^\[' "$work/log" >&2; exit 1; }
echo "$compiler takes all ${#objects[@]} files"
rm -rf "$work"
