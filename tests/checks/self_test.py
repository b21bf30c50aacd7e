#!/usr/bin/env python3
"""The checks beside this file find what they are there to find. Usage: self_test.py <compiler>"""

import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def run(check, *arguments):
    result = subprocess.run([sys.executable, HERE / check, *arguments], text=True, capture_output=True)
    return result.returncode, result.stdout + result.stderr


def write(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def layering(root):
    write(root, "reel.h", '#include "reel/core/a.h"\n')
    write(root, "core/a.h", "#include <vector>\n")
    write(root, "nn/a.cpp", '#include "reel/ops/a.h"\n#include <nlohmann/json.hpp>\n')
    yield "", run("layering.py", root)
    for name, text, words in [
        ("core/b.cpp", '#include "reel/ops/a.h"', "core may include core only"),
        ("ops/b.h", '#include "reel/backends/cpu/cpu.h"', "ops may include core, ops only"),
        ("backends/cpu/b.cpp", '#include "reel/ops/a.h"', "backends may include backends, core only"),
        ("backends/cpu/b.cpp", '#include "reel/backends/cuda/a.h"', "may not know another backend"),
        ("core/b.h", "#include <ranges>", "a supported compiler lacks"),
        ("nn/b.h", "#include <nlohmann/json.hpp>", "the standard library only"),
        ("ops/b.h", "#  include <Eigen/Core>", "the standard library only"),
        ("nn/b.cpp", '#include "b.h"', "spell it"),
        ("nn/b.cpp", '#include "reel/nn/../core/b.h"', "spell it"),
    ]:
        write(root, name, text + "\n")
        yield words, run("layering.py", root)
        (root / name).unlink()


def sources(root):
    write(root, "core/CMakeLists.txt", "target_sources(x PRIVATE\n  a.cpp\n)\n")
    write(root, "core/a.cpp", "")
    yield "", run("sources.py", root)
    write(root, "core/aa.cpp", "")
    yield "core/aa.cpp is in no CMakeLists.txt", run("sources.py", root)


def isa_symbols(root, compiler):
    good = "namespace reel::cpu::ISA { inline int f(int x) { return x + 1; } int (*g)(int) = &f; }\n"
    bad = "namespace reel { inline int f(int x) { return x + 1; } namespace cpu::ISA { int (*g)(int) = &f; } }\n"
    for text, words in (good, ""), (bad, "reel::f(int) may be merged"):
        write(root, "a.cpp", text)
        paths = []
        for isa in "v2", "v3", "v4":
            path = root / f"reel_cpu_{isa}.dir" / "a.o"
            path.parent.mkdir(exist_ok=True)
            subprocess.run([compiler, "-std=c++20", f"-DISA={isa}", "-c", root / "a.cpp", "-o", path], check=True)
            paths.append(str(path))
        write(root, "objects.txt", "\n".join(paths))
        yield words, run("isa_symbols.py", root / "objects.txt")


def headers(root, compiler):
    for text, words in [
        ("#pragma once\n#include <vector>\ninline std::vector<int> f() { return {}; }\n", ""),
        ("#pragma once\nstd::vector<int> f();\n", "does not compile alone"),
        ("#include <vector>\nstruct S {};\n", "does not compile alone"),
        ("#pragma once\n#include <omp.h>\n", "pulls in"),
    ]:
        write(root, "reel/core/a.h", text)
        yield words, run("headers.py", root, compiler)


def main():
    compiler = sys.argv[1]
    failures = count = 0
    for check in layering, sources, lambda root: isa_symbols(root, compiler), lambda root: headers(root, compiler):
        with tempfile.TemporaryDirectory() as folder:
            for words, (status, output) in check(pathlib.Path(folder)):
                count += 1
                if status != (1 if words else 0) or words not in output:
                    failures += 1
                    print(f"expected '{words or 'no problem'}', got status {status}:\n{output}")
    print(f"{count} cases, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
