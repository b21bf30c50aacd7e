#!/usr/bin/env python3
"""Code that a page quotes still stands in the tree, word for word.

A fenced block names its file behind the language: ```cpp ops/softmax.cpp. A line of three dots leaves something out.
Usage: quotes.py <source folder> <page>...
"""

import pathlib
import re
import sys

BLOCK = re.compile(r"^```(\w+) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = {"sh", "text"}


def problems_of(root, page):
    text = (root / page).read_text()
    for language, name, quoted in BLOCK.findall(text):
        line = text[:text.index(quoted)].count("\n") + 1
        if not name:
            if language not in COMMANDS:
                yield f"{page}:{line}: a quotation must name its file"
            continue
        if not (root / name).is_file():
            yield f"{page}:{line}: there is no {name}"
            continue
        source, at = (root / name).read_text(), 0
        for part in re.split(r"^ *\.\.\.\n", quoted, flags=re.MULTILINE):
            found = ("\n" + source).find("\n" + part, at)
            if found < 0:
                yield f"{page}:{line}: not, or no longer, in {name}:\n{part}"
                break
            at = found + len(part)


def main():
    root, pages = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    blocks = sum(len(BLOCK.findall((root / page).read_text())) for page in pages)
    problems = [problem for page in pages for problem in problems_of(root, page)]
    print("\n".join(problems + [f"{blocks} quotations, {len(problems)} problems"]))
    return 1 if problems or not blocks else 0


if __name__ == "__main__":
    sys.exit(main())
