#!/usr/bin/env python3
"""What Reel costs who uses it, beside libtorch: compile time, start-up and memory of a trivial program, and library size.

users_cost.py --reel BUILD [--torch FOLDER] [--json FILE]; see scripts/measure-build
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# With an argument it tells its own resident memory.
PROGRAM = """#include <cstdio>
#include <{header}>
int main(int argc, char**) {{
  const bool right = {namespace}::ones({{8}}).sum().item<float>() == 8;
  if (argc > 1)
    if (std::FILE* status = std::fopen("/proc/self/status", "r"))
      for (char line[256]; std::fgets(line, sizeof line, status);) std::fputs(line, stdout);
  return right ? 0 : 1;
}}
"""


def timed(command, **options):
    begin = time.perf_counter()
    subprocess.run(command, check=True, **options)
    return time.perf_counter() - begin


def sides(reel, torch):
    """name: (program text, what the compiler is told)."""
    library = next((reel / name for name in ("libreel.so", "libreel.a") if (reel / name).exists()), None)
    if not library:
        sys.exit(f"users_cost: no libreel in {reel}")
    own = PROGRAM.format(header="reel/reel.h", namespace="reel").replace(
        "reel::ones({8}).sum().item<float>()", "reel::sum(reel::ones({8})).item()")
    found = {"reel": (own, ["-I", reel / "include", library, f"-Wl,-rpath,{reel}", "-fopenmp", "-ldl"])}
    if torch and (torch / "include/torch/csrc/api/include").exists():
        found["torch"] = (PROGRAM.format(header="torch/torch.h", namespace="torch"),
                          ["-I", torch / "include", "-I", torch / "include/torch/csrc/api/include", f"-L{torch / 'lib'}",
                           "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{torch / 'lib'}"])
    return found


def library_size(folder, names):
    """Of the stripped libraries."""
    total = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            if not (folder / name).exists():
                return None
            subprocess.run(["strip", "-o", f"{scratch}/stripped", folder / name], check=True)
            total += os.path.getsize(f"{scratch}/stripped")
    return total


def resident_memory(program):
    status = subprocess.run([program, "tell"], capture_output=True, text=True, check=True).stdout
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


def measure(reel, torch, rounds, starts=10):
    environment = {**os.environ, "CCACHE_DISABLE": "1"}
    found, cost = sides(reel, torch), {}
    with tempfile.TemporaryDirectory() as folder:
        compiles, runs = {name: [] for name in found}, {name: [] for name in found}
        for _ in range(rounds):
            for name, (source, told) in found.items():
                Path(f"{folder}/{name}.cpp").write_text(source)
                command = [os.environ.get("CXX", "c++"), "-std=c++20", "-O2", "-w", f"{folder}/{name}.cpp", "-o",
                           f"{folder}/{name}", *told]
                compiles[name].append(timed([str(part) for part in command], env=environment))
                runs[name] += [timed([f"{folder}/{name}"]) for _ in range(starts)]
        for name in found:
            memory = statistics.median(resident_memory(f"{folder}/{name}") for _ in range(rounds))
            cost[name] = {"start-up": statistics.median(runs[name]), "resident memory": memory,
                          "compile of a trivial program": statistics.median(compiles[name])}
    sizes = {"reel": library_size(reel, ["libreel.so"])}
    if "torch" in found:
        sizes["torch"] = library_size(torch / "lib", ["libtorch_cpu.so", "libc10.so"])
    for name, size in sizes.items():
        if size:
            cost[name]["library size, stripped"] = size
    return cost


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reel", type=Path, required=True, help="a build folder")
    parser.add_argument("--torch", type=Path, help="the folder torch of a Python environment")
    parser.add_argument("--json", type=Path, help="also written here; what it holds already is kept")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    cost = measure(options.reel.resolve(), options.torch, options.rounds)
    for name, items in cost.items():
        for what, value in items.items():
            unit = f"{value / 1e6:.2f} MB" if value > 1e3 else f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.1f} s"
            print(f"{name}, {what}: {unit}")
    if options.json:
        known = json.loads(options.json.read_text()) if options.json.exists() else {}
        for name, items in cost.items():
            known.setdefault(name, {}).update(items)
        options.json.write_text(json.dumps(known, indent=1))


if __name__ == "__main__":
    main()
