#!/usr/bin/env bash
# What a machine or a project around Reel may have that ours has not; none of it is compiled here.
# Usage: surroundings.sh <Reel's sources> <work> <compiler>
set -euo pipefail
source=$1 work=$2/surroundings compiler=$3
here=$(dirname "$0")
rm -rf "$work"
mkdir -p "$work/elsewhere/far away"

# configured <build folder> <source folder> <settings>...
configured() {
  cmake -S "$2" -B "$1" -DCMAKE_CXX_COMPILER="$compiler" -DREEL_CUDA=OFF "${@:3}" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
}

# One build tree for several configurations.
configured "$work/several" "$here" -G "Ninja Multi-Config" -DHOW=add_subdirectory -DREEL_SOURCE="$source"
grep -q '/reel_objects.dir/Release/.*.o$' "$work/several/reel/reel-objects.txt"
echo "Ninja Multi-Config: configures"

# A project that compiles its files together.
configured "$work/unity" "$here" -G Ninja -DCMAKE_UNITY_BUILD=ON -DHOW=add_subdirectory -DREEL_SOURCE="$source"
grep -q 'build CMakeFiles/consumer.dir/Unity/' "$work/unity/build.ninja"
if grep 'build reel/.*/reel_\(cpu_[^/]*\|choice\).dir/Unity/' "$work/unity/build.ninja"; then exit 1; fi
echo "CMAKE_UNITY_BUILD: Reel's kernels are compiled one by one"

# A build folder that is a link to another disk.
ln -s "$work/elsewhere/far away" "$work/link"
configured "$work/link/build" "$source" -G Ninja -DREEL_TESTS=OFF -DREEL_EXAMPLES=OFF -DREEL_BENCHMARKS=OFF
for header in reel.h core/tensor.h nn/module.h; do
  [[ $work/link/build/include/reel/$header -ef $source/$header ]] || { echo "no $header in $work/link/build/include/reel"; exit 1; }
done
echo "a build folder behind a link: finds the headers"
rm -rf "$work"
