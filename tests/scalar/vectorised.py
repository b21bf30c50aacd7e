#!/usr/bin/env python3
"""Every loop over a scalar function is vectorised at full width: the compiler is asked to say so.

Usage: vectorised.py <source folder> <include folder> <C++ compiler> <flags>...
"""

import pathlib
import re
import subprocess
import sys


def main():
    root, include, compiler, *flags = sys.argv[1:]
    root = pathlib.Path(root)
    text = (root / "core/scalar/list.h").read_text()
    listed = text[text.index("#define REEL_UNARY_OPS"):text.index("#define REEL_BINARY_OPS")]
    ops = len(re.findall(r"\bX\(\w+, \w+\)", listed))
    # Forward and backward, f32 and f64, but gelu of f32 is written in vectors; two loops of normal numbers, two of pow.
    expected = 4 * ops - 2 + 4
    command = [compiler, *flags, "-I", include, "-DREEL_CPU_ISA=v4", "-fopt-info-vec-optimized", "-S", "-o", "/dev/null",
               str(root / "tests/scalar/loops.cpp")]
    report = subprocess.run(command, text=True, capture_output=True, check=True).stderr
    found = len(re.findall(r"scalar/loops\.cpp:\d+:\d+: optimized: loop vectorized using 64 byte vectors", report))
    print(f"{found} of {expected} loops over {ops} functions are vectorised")
    return 0 if ops and found >= expected else 1


if __name__ == "__main__":
    sys.exit(main())
