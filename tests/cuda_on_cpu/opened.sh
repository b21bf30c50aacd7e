#!/usr/bin/env bash
# A program with the shared libreel opens libreel-cuda.so beside it: here the CUDA backend on the executor. Also what it says
# when that library is missing, of another version, of another kind, or of another libreel.
# Usage: opened.sh <program> <installed shared> <installed static> <work> <compiler> <the backend's flags> <its object files>...
set -euo pipefail
source=$1 shared=$2 static=$3 work=$4 compiler=$5
read -ra flags <<<"$6"
shift 6
rm -rf "$work" && mkdir -p "$work"
lib=$work/lib && cp -r "$shared/lib" "$lib"
name=$(basename "$(ls "$lib"/libreel.so.?.?)")
plugin=$lib/libreel-cuda${name#libreel}

"$compiler" -std=c++20 -O1 "${flags[@]}" -I "$shared/include" "$source" -L "$lib" -lreel \
  -Wl,-rpath,"$lib" -o "$work/program"
"$compiler" -std=c++20 -O1 "${flags[@]}" -I "$static/include" "$source" "$static"/lib/libreel.a -fopenmp \
  -o "$work/static_program"

expect() {  # <words> <program>: its output has the words
  local output
  output=$("$2")
  if [[ $output != *"$1"* ]]; then
    printf 'expected: %s\ngot: %s\n' "$1" "$output"
    exit 1
  fi
}

expect "this Reel has no CUDA library: libreel-cuda.so" "$work/program"
expect "cpu" "$work/program"

echo 'int gone() { return 1; }' | "$compiler" -x c++ -shared -fPIC - -o "$work/libgone.so"
echo 'int gone(); int other() { return gone(); }' | "$compiler" -x c++ -shared -fPIC - -x none "$work/libgone.so" -o "$plugin"
rm "$work/libgone.so"
expect "this Reel has no CUDA library: " "$work/program"
expect "libgone.so" "$work/program"

echo 'int other() { return 1; }' | "$compiler" -x c++ -shared -fPIC - -o "$plugin"
expect "is not a CUDA library of Reel" "$work/program"

echo 'struct Library { const char* version; const void* rest[4]; } library = {"0.0.7", {}};
      extern "C" const Library* reel_cuda_ops() { return &library; }' | "$compiler" -x c++ -shared -fPIC - -o "$plugin"
expect "must be of version" "$work/program"
expect "got 0.0.7" "$work/program"

# The address sanitizer's functions are in a library of their own with g++, in the program with Clang.
defined=(-Wl,-z,defs)
[[ $("$compiler" --version) == *clang* ]] && defined=()
"$compiler" -shared -fopenmp "${flags[@]}" "${defined[@]}" "$@" -L "$lib" -lreel -Wl,-rpath,"\$ORIGIN" -o "$plugin"
expect "cuda:0" "$work/program"
expect "sum 6" "$work/program"

# Linked in statically, out of an archive from which only the linker's -u takes it.
ar rcs "$work/libreel-cuda.a" "$@"
for flag in "" -Wl,-u,reel_cuda_ops; do
  "$compiler" -std=c++20 -O1 "${flags[@]}" -I "$static/include" "$source" $flag "$work/libreel-cuda.a" \
    "$static"/lib/libreel.a -fopenmp -o "$work/linked$flag"
done
expect "cpu" "$work/linked"
expect "sum 6" "$work/linked-Wl,-u,reel_cuda_ops"

LD_LIBRARY_PATH=$lib expect "uses another libreel than this program" "$work/static_program"
