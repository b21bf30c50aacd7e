#!/usr/bin/env python3
"""Every source file is named in its folder's CMakeLists.txt or a .cmake file beside it; else nobody would compile it. And atomics
of kernels count: with floating numbers, added in any order, results would vary from run to run.

Usage: sources.py <source folder>
"""

import pathlib
import re
import sys

FOLDERS = ("core", "ops", "backends", "nn", "examples", "tests", "benchmarks")


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    count, problems = 0, []
    for folder in FOLDERS:
        for path in sorted(p for p in (root / folder).rglob("*") if p.suffix in {".cpp", ".cu"}):
            count += 1
            above = [d for d in path.parents if d.is_relative_to(root / folder)]
            lists = [f for d in above for f in [*d.glob("CMakeLists.txt"), *d.glob("*.cmake")]]
            text = "\n".join(f.read_text() for f in lists)
            # reel_add_example and reel_add_benchmark take names without the extension.
            if not re.search(rf"(?<![\w.-])(\w+/)*{re.escape(path.name)}(?![\w.-])|\({path.stem}[ )]", text):
                problems.append(f"{path.relative_to(root)} is in no CMakeLists.txt")
    for path in sorted(p for p in (root / "backends/cuda").glob("*") if p.suffix in {".cu", ".h"}):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if re.search(r"\batomic[A-Z]\w*\(", line.partition("//")[0]) and not re.search(r"\d+u\)", line):
                problems.append(f"{path.relative_to(root)}:{number}: atomics add or exchange constants of type unsigned")
    print("\n".join(problems + [f"{count} files, {len(problems)} problems"]))
    return 1 if problems or not count else 0


if __name__ == "__main__":
    sys.exit(main())
