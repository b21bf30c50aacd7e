#!/usr/bin/env python3
"""The checks beside this file find what they are there to find. Usage: self_test.py <compiler>"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SCRIPTS = HERE.parent.parent / "scripts"


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
    (root / "core/aa.cpp").unlink()
    write(root, "backends/cuda/a.h", "// atomicAdd(\natomicAdd(&count, 1u);\n")
    yield "", run("sources.py", root)
    write(root, "backends/cuda/a.h", "atomicAdd(&sum[row], x);\n")
    yield "backends/cuda/a.h:1: atomics", run("sources.py", root)


def cuda_resources(root):
    write(root, "nvcc", f"#!/bin/sh\ncat {root}/report\n")
    (root / "nvcc").chmod(0o755)
    write(root, "a.cu", "")
    for arch, spills, registers, more, words in [
        ("90", 0, 128, "", ""),
        ("90", 4, 64, "", "8 bytes of stack, 4 + 4 bytes of spills"),
        ("90", 0, 129, "", "129 registers, more than 128"),
        ("90", 0, 64, "ptxas warning : something\n", "ptxas warning"),
        ("120", 60, 168, "", ""),
        ("120", 68, 64, "", "sm_120: f: 72 bytes of stack"),
    ]:
        write(root, "report", f"{more}ptxas info : Compiling entry function 'f' for 'sm_{arch}'\n"
              f"  {spills + 4 if spills else 0} bytes stack frame, {spills} bytes spill stores, {spills} bytes spill loads\n"
              f"ptxas info : Used {registers} registers\n")
        yield words, run("cuda_resources.py", f"--arch={arch}", root / "nvcc", root, root, root / "a.cu")


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


def quotes(root):
    write(root, "ops/a.cpp", "int a() {\n  return 1;\n}\nint b();\n")
    for quoted, words in [
        ("cpp ops/a.cpp\nint a() {\n  return 1;\n}\n...\nint b();\n", ""),
        ("cpp ops/a.cpp\nint a() {\n...\nint b();\n", ""),
        ("sh\nmake\n", ""),
        ("cpp ops/a.cpp\nint a() {\n  return 2;\n}\n", "not, or no longer, in ops/a.cpp"),
        ("cpp ops/a.cpp\nreturn 1;\n", "not, or no longer"),
        ("cpp ops/a.cpp\nint b();\n...\nint a() {\n", "not, or no longer"),
        ("cpp ops/b.cpp\nint a();\n", "there is no ops/b.cpp"),
        ("cpp\nint a();\n", "must name its file"),
    ]:
        write(root, "docs/a.md", f"# A page\n\n```{quoted}```\n")
        yield words, run("quotes.py", root, "docs/a.md")


def formatting(root):
    """Also in another user's clone, which git refuses unless told otherwise; a variable of its own tests makes one."""
    if not shutil.which("git"):
        return
    write(root, "a b.cpp", "")
    write(root, "clang-format",
          f"#!/bin/sh\nif [ $1 = --version ]; then echo version 14.0; exit; fi\n. '{root}/verdict'\n")
    (root / "clang-format").chmod(0o755)
    for arguments in ["init", "-q"], ["add", "a b.cpp"]:
        subprocess.run(["git", *arguments], cwd=root, check=True)
    os.environ["GIT_TEST_ASSUME_DIFFERENT_OWNER"] = "1"
    for verdict, words in [
        ('[ "$3" = "a b.cpp" ]\n', ""),
        ('echo "$3:1:1: error: code" >&2; exit 1\n', "a b.cpp is not formatted"),
    ]:
        write(root, "verdict", verdict)
        yield words, run("format.py", root, root / "clang-format")
    del os.environ["GIT_TEST_ASSUME_DIFFERENT_OWNER"]


def mutations(root):
    """What the mutation check finds in a small tree, and what it leaves alone."""
    write(root, "core/scalar/unary.h", """struct A {
  static T forward(T x) { return x - T(1); }
  static T derivative(T x) { return T(-1) * helper(x); }
};
T helper(T x) { return fma(x, x, T(2)); }
""")
    write(root, "backends/cpu/a.cpp", """namespace {
void row(const T* x, T* y, int64_t n) {
  for (int64_t i = 0; i < n - 1; ++i) y[i + 1] += x[n - i] - T(2);
}
int64_t last(int64_t n) { return n - 1; }
}
void CpuOps::a_backward(const Array& x, const Array& y) {
  row(x.as<T>() + 1, y.as<T>(), last(x.size));
}
void CpuOps::a(const Array& x, const Array& y) { y.as<T>()[0] = T(1) - T(2); }
""")
    write(root, "ops/a.cpp", """namespace {
Tensor half(const Tensor& a) { return 1 - a; }
}
Tensor a(const Tensor& x) {
  Tensor y = x - 1;
  record_op("a", where, {&x}, y, {}, [y](Gradients& g) {
    if (g.needs(0)) g.add(0, half(g.dy()) + neg(sum(y, -1)));
  });
  return y;
}
""")
    program = "import sys; from mutation import sites; found, complaints = sites.backward_functions(sys.argv[1], ());" \
        "print(*[f'{s.path}:{s.line} {s.change}' for f in found for s in f.sites], *complaints, sep='\\n')"
    result = subprocess.run([sys.executable, "-B", "-c", program, root], text=True, capture_output=True, cwd=SCRIPTS)
    expected = """backends/cpu/a.cpp:3 += -> -= in ++i) y[i + 1] += x[n - i] - T(2)
backends/cpu/a.cpp:3 - -> + in ) y[i + 1] += x[n - i] - T(2)
core/scalar/unary.h:3 drop - of -1
core/scalar/unary.h:5 negate first factor of fma(x, ...)
ops/a.cpp:2 - -> + in return 1 - a
ops/a.cpp:7 + -> - in g.add(0, half(g.dy()) + neg(sum(y, -1)))
ops/a.cpp:7 drop neg of neg(sum(y, -1))
ops/a.cpp:7 negate half(g.dy()) + neg(sum(y, -1))
"""
    same = sorted(result.stdout.splitlines()) == sorted(expected.splitlines())
    yield "", (0 if same else 1, "" if same else result.stdout + result.stderr)


def compare_results(root):
    one, inf, nan = (1.0).hex(), "inf", "nan"
    near, far = (1 + 2.0 ** -23).hex(), (1 + 2.0 ** -19).hex()
    write(root, "first", f"a f32 2 {one} {inf} {nan}\nb i64 2 {one}\n")
    for words, text in [
        ("", f"b i64 2 {one}\na f32 2 {near} {inf} {nan}\n"),
        ("a: 1 of 3 numbers differ", f"a f32 2 {far} {inf} {nan}\nb i64 2 {one}\n"),
        ("a: 2 of 3 numbers differ", f"a f32 2 {inf} {one} {nan}\nb i64 2 {one}\n"),
        ("a: 2 of 3 numbers differ", f"a f32 2 {one} -{inf} {one}\nb i64 2 {one}\n"),
        ("a: 0 of 3 numbers differ", f"a f32 2 {one} {inf}\nb i64 2 {one}\n"),
        ("b: 1 of 1 numbers differ", f"a f32 2 {one} {inf} {nan}\nb i64 2 {near}\n"),
        ("b is in one file only", f"a f32 2 {one} {inf} {nan}\n"),
        ("a is in one file only", ""),
    ]:
        write(root, "second", text)
        result = subprocess.run([sys.executable, SCRIPTS / "compare-results", root / "first", root / "second"], text=True,
                                capture_output=True)
        yield words, (result.returncode, result.stdout + result.stderr)
    write(root, "first", "")
    result = subprocess.run([sys.executable, SCRIPTS / "compare-results", root / "first", root / "second"], text=True,
                            capture_output=True)
    yield "0 results", (result.returncode, result.stdout + result.stderr)


def gpu_check(root):
    """Where no GPU is, or no driver for it, it says so before it does anything."""
    write(root, "nvidia-smi", "#!/bin/sh\nexit 9\n")
    (root / "nvidia-smi").chmod(0o755)
    environment = os.environ | {"PATH": f"{root}:{os.environ['PATH']}"}
    result = subprocess.run([SCRIPTS / "gpu-check", root / "report"], text=True, capture_output=True, env=environment)
    yield "this machine has no NVIDIA GPU", (result.returncode, result.stdout + result.stderr)
    yield "", (1 if (root / "report").exists() else 0, "a report was begun")


def main():
    compiler = sys.argv[1]
    failures = count = 0
    for check in (layering, sources, cuda_resources, quotes, formatting, mutations, compare_results, gpu_check,
                  lambda root: isa_symbols(root, compiler), lambda root: headers(root, compiler)):
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
