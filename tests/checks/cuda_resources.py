#!/usr/bin/env python3
"""Every CUDA kernel compiles for sm_90 without a warning and keeps everything in registers.

Usage: cuda_resources.py <nvcc> <source folder> <include folder>[:<include folder>...] [file.cu ...]
Reads the compiler's own report (-Xptxas -v): spills, and local memory, which a kernel takes when it indexes registers.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile


def compile_report(nvcc, include, path):
    with tempfile.TemporaryDirectory() as folder:
        command = [nvcc, "-std=c++20", "-O3", "--fmad=false", "--diag-suppress=1675", "-Xptxas=-v",
                   "-gencode=arch=compute_90,code=sm_90",
                   "-Xcompiler=-Wall,-Wextra,-ffp-contract=off", *(f"-I{i}" for i in include.split(":")),
                   "-c", str(path), "-o", f"{folder}/out.o"]
        result = subprocess.run(command, text=True, capture_output=True)
    return path, result.returncode, result.stdout + result.stderr


def problems_of(path, code, report):
    if code != 0:
        yield f"{path.name} does not compile:\n{report[-2000:]}"
        return
    for line in report.splitlines():
        if "warning" in line:
            yield f"{path.name}: {line}"
    pattern = r"Function properties for (\S+)\s+(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
    for name, stack, stores, loads in re.findall(pattern, report):
        if int(stack) or int(stores) or int(loads):
            yield f"{path.name}: {name}: {stack} bytes of stack, {stores} + {loads} bytes of spills"


def main():
    nvcc, root, include = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
    files = [pathlib.Path(f) for f in sys.argv[4:]] or sorted((root / "backends/cuda").glob("*.cu"))
    count = kernels = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, code, report in pool.map(lambda f: compile_report(nvcc, include, f), files):
            registers = [int(r) for r in re.findall(r"Used (\d+) registers", report)]
            kernels += len(registers)
            print(f"{path.name}: {len(registers)} kernels, at most {max(registers, default=0)} registers")
            for problem in problems_of(path, code, report):
                print(problem)
                count += 1
    print(f"{len(files)} files, {kernels} kernels, {count} problems")
    return 1 if count or not files else 0


if __name__ == "__main__":
    sys.exit(main())
