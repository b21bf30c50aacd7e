#!/usr/bin/env python3
"""Each installed header compiles alone, without a warning, and pulls in no library but the standard one.

Usage: headers.py <include folder of an installation> <compiler> [--together]
--together: all in one file, for a second compiler with the same standard library, which can miss nothing in one alone.
Exits with 77, which CTest reports as skipped, where there is no such compiler.
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

FOREIGN = re.compile(r"/(Eigen|eigen3|nlohmann|CLI|cuda[^/]*|omp)[./]")


def check(include, compiler, headers):
    names = [header.relative_to(include) for header in headers]
    # Twice, for a missing #pragma once.
    text = "".join(f'#include "{name}"\n#include "{name}"\n' for name in names)
    with tempfile.NamedTemporaryFile(mode="r", suffix=".d") as included:
        command = [compiler, "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", str(include)]
        command += ["-MD", "-MF", included.name, "-x", "c++", "-"]
        result = subprocess.run(command, input=text, text=True, capture_output=True)
        if result.returncode != 0:
            what = f"{names[0]} does not compile alone" if len(names) == 1 else f"{len(names)} headers do not compile"
            return f"{what}:\n{result.stderr}"
        foreign = sorted({f for f in included.read().split() if FOREIGN.search(f)})
    if foreign and len(names) == 1 and "interop" not in names[0].parts:
        return f"{names[0]} pulls in {', '.join(foreign[:3])}"
    return None


def main():
    include, compiler = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    if shutil.which(compiler) is None:
        print("skipped: clang++ is not installed; scripts/setup test does so")
        return 77
    headers = sorted((include / "reel").rglob("*.h"))
    parts = [headers] if "--together" in sys.argv[3:] else [[header] for header in headers]
    with concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        problems = [p for p in pool.map(lambda h: check(include, compiler, h), parts) if p]
    print("\n".join(problems + [f"{len(headers)} headers, {len(problems)} problems"]))
    return 1 if problems or not headers else 0


if __name__ == "__main__":
    sys.exit(main())
