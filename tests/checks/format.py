#!/usr/bin/env python3
"""Every tracked C++ file is as clang-format would write it. Usage: format.py <source folder> <clang-format>"""

import subprocess
import sys


def main():
    root, clang_format = sys.argv[1:3]
    listed = subprocess.run(["git", "ls-files", "*.h", "*.cpp", "*.cu", "*.cuh"], cwd=root, text=True,
                            capture_output=True, check=True)
    files = listed.stdout.split()
    result = subprocess.run([clang_format, "--dry-run", "--Werror", *files], cwd=root, text=True, capture_output=True)
    wrong = sorted({line.split(":")[0] for line in result.stderr.splitlines() if ": error:" in line})
    print("\n".join([f"{name} is not formatted" for name in wrong] + [f"{len(files)} files, {len(wrong)} problems"]))
    return 1 if result.returncode != 0 or not files else 0


if __name__ == "__main__":
    sys.exit(main())
