#!/usr/bin/env python3
"""What gdb shows of Reel's values with scripts/gdb/reel_printers.py.

Usage: printers.py <gdb> <printers> <program test_gdb_values>
"""

import re
import subprocess
import sys

EXPECTED = {
    "nothing": r"undefined",
    "matrix": r"f32 \[2, 3\] = \{0\.5, 1, -2, 3, 4, 5\}",
    "turned": r"f32 \[3, 2\] = \{0\.5, 3, 1, 4, -2, 5\}",
    "mask": r"bool8 \[2, 3\] = \{true, true, false, true, true, true\}",
    "halves": r"bf16 \[3\] = \{0\.5, -3, 99840\}",
    "smaller": r"f16 \[3\] = \{0\.5, -3, inf\}",
    "scalar": r"i64 \[\] = \{7\}",
    "longer": r"i64 \[1000\] = \{0, 1, 2.*, 199\.\.\.\}",
    "ragged": r"3 sequences of lengths \{1, 0, 2\}: f64 \[3\] = \{1, 2, 3\}",
    "weight": r"parameter 'conv\.weight' f32 \[2\] = \{1, 1\}",
    "shape": r"\[4, 5\]",
    "list": r"5 tensors = \{i64 \[\] = \{7\}, f32 .*, i64 .*, i64 .*, bool8 \[2, 3\] = \{true.*\}",
}


def main():
    gdb, printers, program = sys.argv[1:]
    command = [gdb, "-batch", "-nx", "-ex", f"source {printers}", "-ex", "break look", "-ex", "run", "-ex", "up"]
    for name in EXPECTED:
        command += ["-ex", f"print {name}"]
    result = subprocess.run([*command, program], text=True, capture_output=True)
    problems = 0
    for number, (name, pattern) in enumerate(EXPECTED.items(), 1):
        shown = re.search(rf"^\${number} = (.*)$", result.stdout, re.MULTILINE)
        if not shown or not re.fullmatch(pattern, shown.group(1)):
            print(f"{name}: expected {pattern}\n  got {shown.group(1) if shown else 'nothing'}")
            problems += 1
    print(f"{len(EXPECTED)} values, {problems} problems")
    if problems:
        print(result.stdout, result.stderr, sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
