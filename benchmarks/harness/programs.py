"""The programs that are measured: Reel's and its peers', each a process that speaks the protocol of runner.h."""

import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .judge import OTHER_LAYOUT

BENCHMARKS = Path(__file__).resolve().parent.parent

# Peers are measured at their best: without this glibc gives big blocks back to the system after every op.
TUNED = {"GLIBC_TUNABLES": "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=17179869184"}
HUGE_PAGES = {"GLIBC_TUNABLES": TUNED["GLIBC_TUNABLES"] + ":glibc.malloc.hugetlb=1"}  # asked for with madvise
JEMALLOC = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"


# What changes how fast a program is: all are measured with the same settings, whatever the caller's shell says.
SETTINGS = ("ATEN_", "DNNL_", "GLIBC_TUNABLES", "GOMP_", "KMP_", "LD_PRELOAD", "MALLOC_", "MKL_", "NPY_", "NUMBA_", "OMP_",
            "ONEDNN_", "OPENBLAS_", "PYTORCH_", "REEL_", "TORCH_")
PASSED = ("REEL_BENCH_PYTHON", "REEL_NVRTC")  # where something lies
GRACE = 5  # seconds that a program has to end


def is_setting(name):
    return name.startswith(SETTINGS) and name not in PASSED


class Program:
    """Raises RuntimeError if it does not start."""

    def __init__(self, command, environment=None, setting=""):
        self.command, self.setting = [str(part) for part in command], setting
        self.name = " ".join(Path(part).name for part in self.command)
        self.environment = {name: value for name, value in os.environ.items() if not is_setting(name)}
        self.environment.update(environment or {})
        self.process = None
        try:
            listed = subprocess.run([*self.command, "--rows"], env=self.environment, capture_output=True, text=True, check=True)
            self.rows = {name: int(threads) for name, threads in (line.split() for line in listed.stdout.splitlines())}
        except subprocess.CalledProcessError as error:
            reason = (error.stderr.strip().splitlines() or [ended(error.returncode)])[-1]
            raise RuntimeError(f"{self.name} does not start: {reason}") from error
        except (OSError, ValueError) as error:
            raise RuntimeError(f"{self.name} does not start: {error}") from error

    def say(self, line):
        """Starts the program if it is not running, or ended since it was last asked."""
        for _ in range(2):
            if self.process and self.process.poll() is not None:
                self.end()
            if not self.process:
                self.process = subprocess.Popen([*self.command, "--serve"], env=self.environment, stdin=subprocess.PIPE,
                                                stdout=subprocess.PIPE, text=True)
            try:
                self.process.stdin.write(line + "\n")
                self.process.stdin.flush()
                return
            except BrokenPipeError:
                status = self.end()
        raise RuntimeError(f"{self.name}: {ended(status)}")

    def ask(self, row, seconds, threads=0):
        """The program's answer; raises RuntimeError if it has none."""
        self.say(f"{row} {seconds} {threads}")
        line = self.process.stdout.readline()
        try:
            answer = json.loads(line) if line else {"error": ended(self.end())}
        except ValueError:  # it ended within a line
            answer = {"error": f"{ended(self.end())}, and its last words were {line.strip()!r}"}
        if "error" in answer:
            raise RuntimeError(f"{self.name}: {row}: {answer['error']}")
        return answer

    def forget(self):
        """Gives back what was made for rows so far."""
        if self.process and self.process.poll() is None:
            try:
                self.process.stdin.write("forget\n")
                self.process.stdin.flush()
            except BrokenPipeError:  # it has nothing left
                self.end()

    def end(self):
        """Of a program that is not to be spoken with any more; its exit status."""
        process, self.process = self.process, None
        try:
            process.stdin.close()  # with what could not be written
        except BrokenPipeError:
            pass
        try:
            return process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()
        finally:
            process.stdout.close()


def ended(status):
    return f"it ended with {f'signal {-status}' if status < 0 else f'status {status}'}"


class Way:
    """One way of a side to do a row."""

    def __init__(self, program, row, threads=0):
        self.program, self.row, self.threads = program, row, threads
        variant = row.partition("@")[2]
        parts = [variant, program.setting, f"{threads} thread" + "s" * (threads != 1) if threads else ""]
        self.name = ", ".join(part for part in parts if part) or "plain"

    def ask(self, seconds):
        return self.program.ask(self.row, seconds, self.threads)


# Variants of rows that are a peer of their own: another layout of its users' tensors, not another way to compute with the same.
APART = {"channels_last": OTHER_LAYOUT["torch"]}


class Side:
    """Reel or a peer: the programs that hold its rows, in different settings where one is not always the best."""

    def __init__(self, name, programs, thread_counts=(0,)):
        self.name, self.programs, self.thread_counts = name, programs, thread_counts

    def ways(self, row):
        """The plain row first."""
        found = []
        for program in self.programs:
            for own, bound in program.rows.items():
                name, _, variant = own.partition("@")
                if name == row and (variant in APART) == (self.name in APART.values()):
                    found += [Way(program, own, threads) for threads in (self.thread_counts if not bound else (0,))]
        return sorted(found, key=lambda way: way.row != row)

    def forget(self):
        for program in self.programs:
            program.forget()


def told_of_cpu(name):
    found = re.search(rf"^{name}\s*: (.*)", Path("/proc/cpuinfo").read_text(), re.M)
    return found[1] if found else ""


def cpu_flags():
    return told_of_cpu("flags").split()


def cpu_is_intel():
    return told_of_cpu("vendor_id") == "GenuineIntel"


# Without AVX-512 on a CPU that has it. (What is compiled for its CPU, Eigen for one, is compiled for another: scripts/bench.)
ONEDNN_AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2", "DNNL_MAX_CPU_ISA": "AVX2"}
AVX2 = {
    "reel": {"REEL_ISA": "v3"},
    "torch": {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", **ONEDNN_AVX2},
    "openblas": {"OPENBLAS_CORETYPE": "Haswell"},
    "onednn": ONEDNN_AVX2,
    "numba": {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": ""},
    "numpy": {"NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR X86_V4",
              "OPENBLAS_CORETYPE": "Haswell"},
}


PROGRAMS = {"ladder": "gemm_ladder", "ops": "op_rows"}  # of suites whose rows are apart


def find_sides(build, peers, python, chosen=tuple(PROGRAMS), quick=False, avx2=False):
    """(Reel, the limits' program, the peers that can be had, names of what is not here). What does not start is told of.
    `chosen`: the suites that are measured; `avx2`: all are told to do without AVX-512."""
    ignored = sorted(filter(is_setting, os.environ))
    if ignored:
        print(f"bench: ignored, as all are measured with the same settings: {', '.join(ignored)}", file=sys.stderr)
    wide = "avx512f" in cpu_flags() and not avx2
    only = AVX2 if avx2 else {}
    python_rows = [python, BENCHMARKS / "peers/python_rows.py"]
    torch = {**TUNED, **({"ATEN_CPU_CAPABILITY": "avx512"} if wide else {}), **only.get("torch", {})}
    settings = {
        "torch": [("", [peers / "torch_rows"], torch)],
        "openblas": [("", [peers / "openblas_rows"], only.get("openblas", {}))],
        "onednn": [("", [peers / "onednn_rows"], only.get("onednn", {}))],
        "eigen": [("", [peers / "eigen_rows"], {})],
        "python torch": [("", [*python_rows, "torch"], torch)],
        "numba": [("", [*python_rows, "numba"], only.get("numba", {}))],
        "numpy": [("", [*python_rows, "numpy"], only.get("numpy", {}))],
    }
    if not quick:
        settings["torch"].append(("huge pages", [peers / "torch_rows"], {**torch, **HUGE_PAGES}))
    if not quick and os.path.exists(JEMALLOC):
        settings["torch"].append(("jemalloc", [peers / "torch_rows"], {**torch, "LD_PRELOAD": JEMALLOC}))
    if wide:  # an older OpenBLAS does not know newer CPUs and takes a lesser core for them
        settings["openblas"].append(("core SkylakeX", [peers / "openblas_rows"], {"OPENBLAS_CORETYPE": "SkylakeX"}))

    cores = os.cpu_count() or 1
    counts = (0,) if quick or cores == 1 else (cores, 1)
    sides, missing = [], []
    with ThreadPoolExecutor() as pool:  # side by side: PyTorch and numba take seconds to start
        starts = {name: [(setting, command, pool.submit(Program, command, environment, setting))
                         for setting, command, environment in ways] for name, ways in settings.items()}
    for name, ways in starts.items():
        programs = []
        for setting, command, start in ways:
            try:
                programs.append(start.result())
            except RuntimeError as error:
                if shutil.which(command[0]):
                    print(f"bench: {error}" + f" ({setting})" * bool(setting), file=sys.stderr)
        if programs:
            sides.append(Side(name, programs, counts))
            if name == "torch":
                sides += [Side(apart, programs, counts) for apart in APART.values()]
        else:
            missing.append(name)
    own = []
    for name in ("rows", *(program for suite, program in PROGRAMS.items() if suite in chosen)):
        program = build / f"benchmarks/benchmark_{name}"
        if program.exists():
            own.append(start_own(program, only.get("reel")))
        else:
            missing.append(program.name)
    return Side("reel", own), start_own(build / "benchmarks/benchmark_limits"), sides, missing


def start_own(program, environment=None):
    """Without Reel's own programs there is nothing to measure."""
    try:
        return Program([program], environment)
    except RuntimeError as error:
        sys.exit(f"bench: {error}")


def exit_without(build):
    for name in ("rows", "limits"):
        if not (build / f"benchmarks/benchmark_{name}").exists():
            sys.exit(f"bench: benchmark_{name} is not built in {build}")
