#!/usr/bin/env python3
"""Every CUDA kernel compiles without a warning, and on sm_90 it keeps everything in registers; and the backend's other sources
compile with the toolkit's own headers (the executor has others).

Usage: cuda_resources.py [--arch=90,75,...] <nvcc> <source folder> <include folder>[:<include folder>...] [file ...]
Reads the compiler's own report (-Xptxas -v): spills, local memory, which a kernel takes when it indexes registers, and
registers: blocks have up to 512 threads, which share 65,536, unless __launch_bounds__ says less. On GPUs other than sm_90
a few numbers of a thread may go to local memory, as many as the compiler puts outside of inner loops.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

STRICT = "90"
MOST_REGISTERS = 128
MOST_SPILLS = 64  # bytes of a thread, elsewhere

BOUND = re.compile(r"__launch_bounds__\([^)]*\)\s*(\w+)\(")
KERNEL = re.compile(r"Compiling entry function '(\S+)' for 'sm_(\d+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
                    r"(\d+) bytes spill loads.*?Used (\d+) registers", re.S)


def compile_report(nvcc, include, archs, path):
    with tempfile.TemporaryDirectory() as folder:
        command = [nvcc, "-std=c++20", "-O3", "--fmad=false", "--diag-suppress=1675", "-Xptxas=-v",
                   *(f"-gencode=arch=compute_{a},code=sm_{a}" for a in archs), '-DREEL_VERSION="checked"',
                   f"-DREEL_CUDA_LEAST_CAPABILITY={min(archs, key=int)}",
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
    bound = [f"{len(name)}{name}" for name in BOUND.findall(path.read_text())]  # as in mangled names
    for name, arch, *numbers in KERNEL.findall(report):
        stack, stores, loads, registers = map(int, numbers)
        if max(stack, stores) > (0 if arch == STRICT else MOST_SPILLS):
            yield f"{path.name}: sm_{arch}: {name}: {stack} bytes of stack, {stores} + {loads} bytes of spills"
        if arch == STRICT and registers > MOST_REGISTERS and not any(b in name for b in bound):
            yield f"{path.name}: {name}: {registers} registers, more than {MOST_REGISTERS}"


def main():
    arguments = sys.argv[1:]
    archs = [STRICT]
    if arguments[0].startswith("--arch="):
        archs = arguments.pop(0).removeprefix("--arch=").split(",")
    nvcc, root, include = arguments[0], pathlib.Path(arguments[1]), arguments[2]
    files = [pathlib.Path(f) for f in arguments[3:]] or sorted((root / "backends/cuda").glob("*.c[up]*"))
    count = kernels = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, code, report in pool.map(lambda f: compile_report(nvcc, include, archs, f), files):
            registers = [int(k[-1]) for k in KERNEL.findall(report)]
            kernels += len(registers)
            print(f"{path.name}: " + (f"{len(registers)} kernels, at most {max(registers)} registers" if registers
                                      else "compiles" if code == 0 else "does not compile"), flush=True)
            for problem in problems_of(path, code, report):
                print(problem)
                count += 1
    print(f"{len(files)} files, {kernels} kernels, {count} problems")
    return 1 if count or not files or not kernels else 0


if __name__ == "__main__":
    sys.exit(main())
