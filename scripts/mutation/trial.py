"""Tries mutants: compiles what a mutated file is part of, links test programs with that, and runs their gradient tests.

A finished build tree made with Ninja gives the commands, the dependencies and all other objects; it is only read. A mutated
file lies in a folder of its own that the compiler searches first, so that the source tree stays as it is, too.
"""

import functools
import os
import pathlib
import re
import resource
import shlex
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass

GRADIENT_SUITES = "*GradientsMatchDifferences*:*FusedAndRecordedGradientsAgree*"
KERNEL_TESTS = "-*Thread*:*Alone*:*Million*:*AnyLayout*"  # all but those that take long to look for something else
SECONDS = 120  # for one test program; a mutant that takes longer hangs, which is noticed, too
LEVELS = (("v4", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}), ("v3", {"avx2", "bmi2", "fma"}), ("v2", set()))

NEGATED = """#pragma once
#include "reel/ops/unary.h"
namespace reel {
inline Tensor negated(const Tensor& x) { return x.defined() ? neg(x) : x; }
}  // namespace reel
"""


class Failure(Exception):
    pass


@dataclass
class Verdict:
    word: str  # "caught", "SURVIVED" or "not run"
    detail: str
    seconds: float


@dataclass(frozen=True)
class Program:
    """A test program, the tests of it that are to notice, and the objects that may have to be compiled anew."""
    name: str
    tests: str
    objects: str = ""  # a pattern
    every_set: bool = False  # runs on each instruction set that this machine has


def instruction_sets():
    """Those that this machine has, the best one first."""
    flags = set()
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            flags = set(line.split(":")[1].split())
            break
    return [name for name, needed in LEVELS if needed <= flags]


class Tree:
    """The source tree and a build tree of it."""

    def __init__(self, root, build):
        self.root, self.build = pathlib.Path(root).resolve(), pathlib.Path(build).resolve()
        self.sets = instruction_sets()
        self.isa = self.sets[0]
        if not (self.build / "build.ninja").exists():
            raise Failure(f"{self.build} is no build tree made with Ninja")
        tests = (self.root / "tests/CMakeLists.txt").read_text()
        found = re.findall(r"^reel_add_test\((\w+)\s+([^)]*)\)", tests, re.MULTILINE)
        self.sources = {name: [s for s in words.split() if s.endswith(".cpp")] for name, words in found}
        self.lock, self.sound = threading.Lock(), set()

    # --- which tests ----------------------------------------------------------------------------------------------------

    def programs(self, site):
        """The test programs that are to notice a mutant, one after the other until one does."""
        ops = Program("ops", GRADIENT_SUITES)
        if site.path.startswith("core/scalar/"):
            return [Program("scalar", "*Derivative*:*Extremes*", "scalar_loops_", every_set=True)]
        instances = {"core/tape.h": "design", "core/checkpoint.h": "higher_order"}  # of templates
        if site.path in instances:
            return [Program(instances[site.path], "*", f"test_{instances[site.path]}")]
        if site.path.startswith("backends/"):
            return [ops] + [Program(name, KERNEL_TESTS) for name in self.kernel_tests(site.serves)]
        return [ops, Program("ragged", "*Gradients*"), Program("design", "*"), Program("tape", "-*Million*"),
                Program("higher_order", "*"), Program("custom_ops", "*"), Program("ops", "-Table/*")]

    def kernel_tests(self, methods):
        """Programs that call one of these methods of CpuOps, in their own files or in headers beside them."""
        called = re.compile("|".join(rf"\b{m.split('::')[-1]}\(" for m in methods))
        for name, sources in self.sources.items():
            files = [self.root / "tests" / s for s in sources if s.startswith("kernels/")]
            texts = [f.read_text() for f in files]
            headers = {h for text in texts for h in re.findall(r'"reel/(tests/kernels/\w+\.h)"', text)}
            if any(called.search(t) for t in texts + [(self.root / h).read_text() for h in headers]):
                yield name

    # --- what Ninja knows -----------------------------------------------------------------------------------------------

    def _ninja(self, *arguments):
        result = subprocess.run(["ninja", "-C", self.build, *arguments], text=True, capture_output=True)
        if result.returncode != 0:
            raise Failure(f"ninja {' '.join(arguments)}: {result.stdout}{result.stderr}")
        return result.stdout

    def check_finished(self, names):
        stale = [n for n in names if "no work to do" not in self._ninja("-n", f"test_{n}")]
        if stale:
            raise Failure(f"build these first: {', '.join('test_' + n for n in stale)}")

    @functools.cached_property
    def deps(self):
        """object -> the files of the source tree that it depends on."""
        deps, files = {}, None
        for line in self._ninja("-t", "deps").splitlines():
            if line.startswith("    "):
                path = line.strip()
                name = path.split("include/reel/", 1)[1] if "include/reel/" in path else \
                    os.path.relpath(self.build / path, self.root)
                files.add(name)
            elif line:
                files = deps.setdefault(line.split(":")[0], set())
        return deps

    @functools.cache
    def commands(self, program):
        """(object -> how it is compiled, how the program is linked)."""
        compiles, link = {}, None
        for line in self._ninja("-t", "commands", f"test_{program}").splitlines():
            words = [w for w in shlex.split(line) if w not in (":", "&&")]
            if "-o" not in words:
                continue
            target = words[words.index("-o") + 1]
            if "-c" in words:
                compiles[target] = words
            elif target.endswith(f"test_{program}"):
                link = words
        if link is None:
            raise Failure(f"the build tree does not say how test_{program} is linked")
        return compiles, link

    def objects(self, site, program):
        """What must be compiled anew. Of kernels only those of the instruction sets that the tests run: this machine's best one,
        or, of functions that a better set does in its own way, each that it has."""
        sets = self.sets if program.every_set else [self.isa]
        for name in self.commands(program.name)[0]:
            other_set = re.search(r"_(v\d|native)\.dir/", name)
            if site.path in self.deps.get(name, ()) and not (other_set and other_set[1] not in sets):
                if re.search(program.objects, name):
                    yield name

    # --- running --------------------------------------------------------------------------------------------------------

    def run_tests(self, binary, program):
        """None if all tests pass, else what noticed."""
        environment = dict(os.environ, REEL_ISA=self.isa, OMP_WAIT_POLICY="passive")
        no_core = lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        try:
            result = subprocess.run(
                [binary, f"--gtest_filter={program.tests}", "--gtest_brief=1", "--gtest_fail_fast"], text=True,
                errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, timeout=SECONDS,
                preexec_fn=no_core)
        except subprocess.TimeoutExpired:
            return f"{program.name} hangs"
        failed = re.search(r"\[  FAILED  \] ([^\s,]+)", result.stdout)
        if failed:
            return failed[1]
        if result.returncode != 0:
            return f"{program.name} ends with status {result.returncode}"
        if not re.search(r"\[==========\] [1-9]\d* tests?", result.stdout):
            raise Failure(f"test_{program.name} has no tests {program.tests}")
        return None

    def check_unmutated(self, program):
        """Once for each program: its tests pass without a mutation."""
        with self.lock:
            if program not in self.sound:
                noticed = self.run_tests(self.build / "tests" / f"test_{program.name}", program)
                if noticed:
                    raise Failure(f"fails without any mutation: {noticed}")
                self.sound.add(program)

    def verdict(self, site, text):
        """Tries the tree with `text` instead of the site's file."""
        begin = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
            word, detail = self._try(site, text, pathlib.Path(folder))
        return Verdict(word, detail, time.monotonic() - begin)

    def _try(self, site, text, folder):
        mutant = folder / "include/reel" / site.path
        mutant.parent.mkdir(parents=True)
        mutant.write_text(text)
        (folder / "include/reel/negated.h").write_text(NEGATED)
        made = {}
        for program in self.programs(site):
            names = list(self.objects(site, program))
            if not names:
                continue
            for name in names:
                if name not in made:
                    made[name] = folder / f"{len(made)}.o"
                    error = self._tool(self._compiler(name, program, site, folder) + ["-c", "-o", str(made[name])])
                    if error:
                        return "not run", error
            binary = folder / f"test_{program.name}"
            error = self._link(program, {n: made[n] for n in names}, binary)
            if error:
                return "not run", error
            noticed = self.run_tests(binary, program)
            if noticed:
                self.check_unmutated(program)
                return "caught", noticed
            if all(self._same_text(name, program, site, folder) for name in names):
                return "not run", f"no part of the program on {' or '.join(self.sets if program.every_set else [self.isa])}"
        return ("SURVIVED", "") if made else ("not run", "no test program depends on it")

    def _compiler(self, name, program, site, folder):
        """The command that compiles an object, with the mutated file, and with little optimisation: it is to be quick."""
        words = list(self.commands(program.name)[0][name])
        for flag in ("-MT", "-MF", "-o"):
            at = words.index(flag)
            del words[at:at + 2]
        words = ["-O1" if w in ("-O2", "-O3") else w for w in words if w not in ("-MD", "-c")]
        if os.path.samefile(self.build / words[-1], self.root / site.path):
            words[-1] = str(folder / "include/reel" / site.path)
        extra = [f"-I{folder}/include", "-w"]
        if site.needs_tensors:
            extra += ["-include", "reel/negated.h"]
        first = next(i for i, w in enumerate(words) if w.startswith(("-I", "-isystem")))
        return words[:first] + extra + words[first:]

    def _same_text(self, name, program, site, folder):
        """Whether preprocessing removes the mutation: it is in a branch for another instruction set."""
        mutated, words = self._compiler(name, program, site, folder), self.commands(program.name)[0][name]
        original = words[:words.index("-MD")] + [words[-1]]
        texts = [subprocess.run([*w, "-E", "-P", "-o", "-"], cwd=self.build, text=True, capture_output=True).stdout
                 for w in (mutated, original)]
        return texts[0] == texts[1] != ""

    def _link(self, program, objects, binary):
        link = self.commands(program.name)[1]
        words = [str(objects.get(w, w)) for w in link]
        at = words.index("-o")
        words[at + 1] = str(binary)
        # In front of the library, whose own copies are then not asked for.
        words[at:at] = [str(made) for name, made in objects.items() if name not in link]
        return self._tool(words)

    def _tool(self, words):
        result = subprocess.run(words, cwd=self.build, text=True, capture_output=True)
        if result.returncode == 0:
            return None
        errors = [line for line in result.stderr.splitlines() if "error:" in line]
        if not errors:  # nothing about the mutant: no verdict may rest on it
            raise Failure(f"{words[0]} does not run: {result.stderr.strip()[-200:]}")
        return errors[0][-120:]
