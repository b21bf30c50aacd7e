#!/usr/bin/env python3
"""Every tracked C++ file is as clang-format 14 would write it: other versions break lines elsewhere.

Usage: format.py <source folder> <clang-format>
Exits with 77, which CTest reports as skipped, where there is no such version or no git.
"""

import pathlib
import re
import subprocess
import sys

VERSION = "14"


def skip(reason):
    print(f"skipped: {reason}")
    return 77


def main():
    root, clang_format = sys.argv[1:3]
    if not (pathlib.Path(root) / ".git").exists():
        return skip("not a clone, so there is no list of files")
    try:
        version = subprocess.run([clang_format, "--version"], text=True, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return skip(f"clang-format {VERSION} is needed, and not installed; scripts/setup test does so")
    if not re.search(rf"version {VERSION}\.", version):
        return skip(f"clang-format {VERSION} is needed, got {version.strip()}; scripts/setup test installs it")
    try:  # also of another user's clone, as in a container that runs as root
        listed = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-z", "*.h", "*.cpp", "*.cu", "*.cuh"],
                                cwd=root, text=True, capture_output=True, check=True)
    except OSError:
        return skip("git is needed to list the files, and not installed; scripts/setup test does so")
    files = [name for name in listed.stdout.split("\0") if name]
    result = subprocess.run([clang_format, "--dry-run", "--Werror", *files], cwd=root, text=True, capture_output=True)
    wrong = sorted({line.split(":")[0] for line in result.stderr.splitlines() if ": error:" in line})
    print("\n".join([f"{name} is not formatted" for name in wrong] + [f"{len(files)} files, {len(wrong)} problems"]))
    return 1 if result.returncode != 0 or not files else 0


if __name__ == "__main__":
    sys.exit(main())
