#!/usr/bin/env python3
"""The programs that scripts/bench asks, and the Python environment that it makes: settings of the shell, programs that end or
do not start, packages that cannot be had."""

import contextlib
import io
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
sys.dont_write_bytecode = True

from harness import programs

# Speaks the protocol of runner.h. Its rows: one that answers, others that end it before, within or after an answer.
SPEAKER = r"""#!/usr/bin/env python3
import os, sys, time
if sys.argv[1] == "--rows":
    print("good 0\nlast 0\ndies 0\nhalf 1\nmute 0\nsettings 0")
    sys.exit()
for line in sys.stdin:
    row = line.split()[0]
    if row == "dies":
        os.abort()
    if row == "half":
        print('{"row": "ha', end="", flush=True)
        os._exit(3)
    if row == "mute":
        os.close(1)
        time.sleep(60)
    if row == "settings":
        print('{"row": "settings", "environment": "%s"}' % " ".join(sorted(os.environ)), flush=True)
        continue
    print('{"row": "%s", "seconds": 1}' % row, flush=True)
    if row == "last":
        os._exit(0)
"""

# Stands for python3: makes an environment of itself, in which the packages named in HAD can be installed, and then imported.
PYTHON = r"""#!/usr/bin/env bash
here=$(dirname "$0")
case "$*" in
  "-m venv --clear "*) [[ $HAD == nothing ]] && exit 1; mkdir -p "$4/bin"; cp "$0" "$4/bin/python"; touch "$4/bin/has-pip" ;;
  "-m pip --version") [[ -e $here/has-pip ]] ;;
  "-m pip install "*uv) echo >>"$here/asked-for-uv"; [[ " $HAD " == *" uv"* ]] && cp "$0" "$here/uv" ;;
  "-m pip install "* | "pip install "*)
    echo "$*" >>"$here/asked"
    [[ $1 == pip ]] && mkdir -p "$here/../uv-cache"
    [[ $1 == pip && " $HAD " == *" uv-fails "* ]] && exit 1
    [[ " $HAD " == *" ${!#} "* ]] ;;
  "-m pip config list") [[ " $HAD " != *" index "* ]] || printf '%s\n' global.index-url=here global.trusted-host=here ;;
  "-c import "*) name=${2#import }; [[ -e $here/has-$name ]] ;;
  *) exit 2 ;;
esac
"""


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def program(self, text=SPEAKER, environment=None, setting=""):
        program = programs.Program([self.write("speaker", text)], environment, setting)
        self.addCleanup(lambda: program.process and program.end())
        return program


class Programs(InFolder):
    def test_rows_and_their_threads_are_listed(self):
        self.assertEqual(self.program().rows, {"good": 0, "last": 0, "dies": 0, "half": 1, "mute": 0, "settings": 0})

    def test_one_that_ends_is_named_and_started_again(self):
        program = self.program()
        for row, words in (("dies", "speaker: dies: it ended with signal 6"), ("half", "speaker: half: it ended with status 3")):
            with self.assertRaisesRegex(RuntimeError, words):
                program.ask(row, 1)
            self.assertEqual(program.ask("good", 1)["seconds"], 1)

    def test_one_that_ended_after_its_answer_is_started_again(self):
        program = self.program()
        program.ask("last", 1)
        program.process.wait()
        self.assertEqual(program.ask("good", 1)["seconds"], 1)

    def test_one_that_ends_while_it_is_told_is_started_again(self):
        program = self.program()
        program.ask("last", 1)
        program.process.wait()
        with mock.patch.object(program.process, "poll", return_value=None):  # it ended just after it was looked at
            self.assertEqual(program.ask("good", 1)["seconds"], 1)

    def test_one_that_ended_has_nothing_to_forget(self):
        program = self.program()
        program.ask("last", 1)
        program.process.wait()
        with mock.patch.object(program.process, "poll", return_value=None):
            program.forget()
        self.assertEqual(program.ask("good", 1)["seconds"], 1)

    def test_one_that_falls_silent_is_ended(self):
        with mock.patch.object(programs, "GRACE", 0.1), self.assertRaisesRegex(RuntimeError, "speaker: mute: it ended with signal 9"):
            self.program().ask("mute", 1)

    def test_one_that_does_not_start_says_why(self):
        for text, words in (("#!/bin/sh\necho first >&2\necho 'no libtorch_cpu.so' >&2\nexit 127\n", "no libtorch_cpu.so"),
                            ("#!/bin/sh\nkill -ILL $$\n", "it ended with signal 4"), ("#!/bin/sh\necho what\n", "not enough values"),
                            ("#!/no/such\n", "No such file")):
            with self.assertRaisesRegex(RuntimeError, f"^speaker does not start: .*{words}"):
                self.program(text)


class Settings(InFolder):
    SHELL = {"REEL_ISA": "v2", "LD_PRELOAD": "", "ATEN_CPU_CAPABILITY": "default", "MKL_NUM_THREADS": "1", "GLIBC_TUNABLES": "",
             "OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "0", "OPENBLAS_CORETYPE": "Prescott", "REEL_ANYTHING": "1",
             "REEL_BENCH_PYTHON": "python3", "REEL_NVRTC": "x", "KEPT": "1"}

    def test_those_of_the_shell_do_not_pass(self):
        with mock.patch.dict(os.environ, self.SHELL):
            passed = self.program().ask("settings", 1)["environment"].split()
        self.assertEqual(set(passed) & set(self.SHELL), {"REEL_BENCH_PYTHON", "REEL_NVRTC", "KEPT"})

    def test_those_of_a_peer_do(self):
        with mock.patch.dict(os.environ, self.SHELL):
            program = self.program(environment={**programs.HUGE_PAGES, "ATEN_CPU_CAPABILITY": "avx512"})
        self.assertEqual(program.environment["ATEN_CPU_CAPABILITY"], "avx512")
        self.assertIn("GLIBC_TUNABLES", program.ask("settings", 1)["environment"].split())

    def find_sides(self):
        told = io.StringIO()
        with contextlib.redirect_stderr(told):
            sides = programs.find_sides(self.folder, self.folder / "peers", self.folder / "no-python")
        self.addCleanup(lambda: [program.process and program.end() for side in sides[2] for program in side.programs])
        return sides, told.getvalue()

    def test_what_is_ignored_is_named(self):
        self.write("benchmarks/benchmark_limits", SPEAKER)
        with mock.patch.dict(os.environ, {"REEL_ISA": "v2", "REEL_BENCH_PYTHON": "python3"}):
            _, told = self.find_sides()
        self.assertRegex(told, "bench: ignored, .*REEL_ISA")
        self.assertNotIn("REEL_BENCH_PYTHON", told)

    def test_a_peer_that_does_not_start_is_left_out_and_says_why(self):
        for name in ("benchmarks/benchmark_limits", "benchmarks/benchmark_rows", "peers/eigen_rows"):
            self.write(name, SPEAKER)
        self.write("peers/openblas_rows", "#!/bin/sh\necho no libopenblas.so >&2\nexit 127\n")
        (reel, _, peers, missing), told = self.find_sides()
        self.assertEqual(len(reel.programs), 1)
        self.assertEqual([side.name for side in peers], ["eigen"])
        self.assertLess({"openblas", "onednn", "numpy", "numba"}, set(missing))
        self.assertIn("bench: openblas_rows does not start: no libopenblas.so", told)
        self.assertNotIn("onednn", told)

    def test_reel_that_does_not_start_ends_it(self):
        self.write("benchmarks/benchmark_limits", "#!/bin/sh\necho no libreel.so >&2\nexit 127\n")
        with self.assertRaisesRegex(SystemExit, "benchmark_limits does not start: no libreel.so"):
            self.find_sides()


class Environment(InFolder):
    """scripts/bench-python."""

    def make(self, had):
        self.write("path/python3", PYTHON)
        done = subprocess.run([ROOT / "scripts/bench-python", self.folder / "made"], capture_output=True, text=True, check=True,
                              env={**os.environ, "PATH": f"{self.folder / 'path'}:{os.environ['PATH']}", "HAD": had})
        asked = self.folder / "made/bin/asked"
        names = [line.split()[-1] for line in asked.read_text().splitlines()] if asked.exists() else []
        asked.unlink(missing_ok=True)
        return names, done.stderr

    def test_what_is_there_is_not_fetched_again(self):
        self.assertEqual(self.make("uv numpy numba torch"), (["numpy", "numba", "torch"], ""))
        self.assertEqual(self.make("numpy numba torch"), ([], ""))

    def test_what_could_not_be_had_is_tried_again(self):
        names, told = self.make("numpy")
        self.assertEqual(names, ["numpy", "numba", "torch"])
        self.assertIn("bench: no torch: it is tried again the next time; or set REEL_BENCH_PYTHON", told)
        self.assertEqual(self.make("numpy numba torch")[0], ["numba", "torch"])

    def test_half_an_environment_is_made_again(self):
        names, told = self.make("nothing")
        self.assertEqual(names, [])
        self.assertIn("python3-venv", told)
        self.write("made/bin/python", PYTHON)  # as python3 leaves it where it has no pip
        self.assertEqual(self.make("uv numpy numba torch"), (["numpy", "numba", "torch"], ""))

    def asked(self, had):
        """(who was asked, for what)."""
        self.write("path/python3", PYTHON)
        made = self.folder / "made"
        subprocess.run([ROOT / "scripts/bench-python", made], capture_output=True, check=True,
                       env={**os.environ, "PATH": f"{self.folder / 'path'}:{os.environ['PATH']}", "HAD": had})
        lines = [line.split() for line in (made / "bin/asked").read_text().splitlines()]
        return [("uv" if words[0] == "pip" else "pip", words[-1]) for words in lines]

    def test_uv_fetches_where_it_can_be_had(self):
        names = ("numpy", "numba", "torch")
        self.assertEqual(self.asked("uv numpy numba torch"), [("uv", name) for name in names])
        self.assertFalse((self.folder / "made/uv-cache").exists())

    def test_what_uv_fetched_stays_until_all_is_there(self):
        self.assertEqual(self.asked("uv numpy numba")[-2:], [("uv", "torch"), ("pip", "torch")])
        self.assertTrue((self.folder / "made/uv-cache").exists())

    def test_uv_is_asked_for_once(self):
        self.assertEqual({who for who, _ in self.asked("numpy numba torch")}, {"pip"})
        self.assertEqual((self.folder / "made/bin/asked-for-uv").read_text(), "\n")

    def test_pip_does_where_uv_can_not(self):
        names = ("numpy", "numba", "torch")
        self.assertEqual(self.asked("uv-fails numpy numba torch"), [(who, name) for name in names for who in ("uv", "pip")])

    def test_pip_does_where_it_is_told_of_an_index(self):
        names = ("numpy", "numba", "torch")
        self.assertEqual(self.asked("uv index numpy numba torch"), [("pip", name) for name in names])

    def test_an_environment_without_stamps_is_complete_if_its_packages_are(self):
        self.write("made/bin/python", PYTHON)
        for name in ("pip", "numpy", "numba", "torch"):
            self.write(f"made/bin/has-{name}", "")
        self.assertEqual(self.make("nothing"), ([], ""))


if __name__ == "__main__":
    unittest.main()
