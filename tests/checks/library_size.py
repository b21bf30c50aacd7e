#!/usr/bin/env python3
"""The shared library stays small, and needs nothing that a plain machine lacks.

Usage: library_size.py <libreel.so> <folder to work in>
"""

import os
import pathlib
import re
import subprocess
import sys

LIMIT = 5_000_000
SKIPPED = 77
ALLOWED = {"libc", "libm", "libstdc++", "libgcc_s", "libgomp", "linux-vdso", "ld-linux-x86-64"}


def main():
    library, stripped = sys.argv[1], pathlib.Path(sys.argv[2]) / "libreel-stripped.so"
    subprocess.run(["strip", "-o", stripped, library], check=True)
    size = os.path.getsize(stripped)
    linked = subprocess.run(["ldd", library], text=True, capture_output=True, check=True).stdout
    names = {os.path.basename(line.split()[0]) for line in linked.splitlines()}
    foreign = sorted(n for n in names if re.split(r"\.so", n)[0] not in ALLOWED)
    print(f"{size / 1e6:.2f} MB stripped (limit {LIMIT / 1e6:.0f}); needs {', '.join(sorted(names))}")
    if foreign:
        print(f"not allowed: {', '.join(foreign)}")
        return 1
    if not any(name.startswith("libstdc++") for name in names):
        print("this compiler's libstdc++ is part of the library, whose own size nobody knows")
        return SKIPPED
    return 1 if size >= LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
