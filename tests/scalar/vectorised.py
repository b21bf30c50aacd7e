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
    # Forward and backward, f32 and f64, but gelu of f32 is written in vectors; two loops of normal numbers, two of pow. Sine and
    # cosine share theirs, which are the backend's: of near arguments both ways, and of any in f32.
    expected, of_sines = 4 * (ops - 2) - 2 + 4, 2 * 2 + 1
    command = [compiler, *flags, "-I", include, "-DREEL_CPU_ISA=v4", "-fopt-info-vec-optimized", "-S", "-o", "/dev/null",
               str(root / "tests/scalar/loops.cpp")]
    report = subprocess.run(command, text=True, capture_output=True, check=True).stderr

    def vectorised(file):
        return len(re.findall(re.escape(file) + r":\d+:\d+: optimized: loop vectorized using 64 byte vectors", report))

    found, sines = vectorised("scalar/loops.cpp"), vectorised("cpu/long_formula.h")
    print(f"{found} of {expected} loops over {ops} functions are vectorised, and {sines} of {of_sines} over sines")
    return 0 if ops and found >= expected and sines >= of_sines else 1


if __name__ == "__main__":
    sys.exit(main())
