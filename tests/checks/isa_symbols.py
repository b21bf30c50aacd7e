#!/usr/bin/env python3
"""No kernel object shares a symbol with the rest of the program.

The linker keeps one copy of a weak symbol (an inline function or template that was not inlined). If kernels compiled for
x86-64-v4 left one outside their own namespace, code for an old CPU could end up calling it.
Usage: isa_symbols.py <reel-objects.txt>
"""

import re
import subprocess
import sys

# Pointers to the personality routine: data that is the same in every object.
HARMLESS = re.compile(r"^DW\.ref\.")


def main():
    objects = open(sys.argv[1]).read().split()
    kernels = {}
    for path in objects:
        match = re.search(r"/reel_cpu_([a-z0-9]+)(_\w+)?\.dir/", path)  # v2_smaller is v2 too
        if match:
            kernels.setdefault(match[1], []).append(path)
    problems = 0
    for isa, paths in sorted(kernels.items()):
        for path in paths:
            listing = subprocess.run(["nm", "-C", "--defined-only", path], text=True, capture_output=True, check=True)
            for line in listing.stdout.splitlines():
                _, kind, name = line.split(maxsplit=2)
                own = f"reel::cpu::{isa}::" in name or f"4reel3cpu{len(isa)}{isa}" in name  # not all names can be demangled
                if kind in "WVu" and not own and not HARMLESS.match(name):
                    print(f"{path}: {name} may be merged with another instruction set's")
                    problems += 1
    print(f"{sum(map(len, kernels.values()))} kernel objects of {', '.join(sorted(kernels))}, {problems} problems")
    return 1 if problems or not {"v2", "v3", "v4"} <= kernels.keys() else 0


if __name__ == "__main__":
    sys.exit(main())
