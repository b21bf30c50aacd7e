#!/usr/bin/env python3
"""A program of a documentation page's C++ blocks: each is the body of a function, and all are called in order.

Usage: page_program.py <page.md> <program.cpp>
"""

import pathlib
import re
import sys


def main():
    page, program = map(pathlib.Path, sys.argv[1:])
    parts = ["#include <reel/reel.h>\n", "#include <cmath>", "#include <iostream>\n", "using namespace reel;\n"]
    calls = []
    text = page.read_text()
    for number, block in enumerate(re.finditer(r"^```cpp\n(.*?)^```$", text, re.MULTILINE | re.DOTALL), 1):
        line = text[: block.start(1)].count("\n") + 1
        parts.append(f'void block_{number}() {{\n#line {line} "{page}"\n{block.group(1)}}}\n')
        calls.append(f"  block_{number}();")
    if not calls:
        sys.exit(f"{page} has no C++ blocks")
    parts.append("int main() {\n" + "\n".join(calls) + "\n}\n")
    program.write_text("\n".join(parts))


if __name__ == "__main__":
    main()
