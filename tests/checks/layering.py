#!/usr/bin/env python3
"""Who may include whom: core <- ops <- nn <- examples, core <- backends, and ops <- interop.

Also: includes of Reel's own files are spelled "reel/<folder>/<file>", and a public header includes no library but the
standard one (and not those parts of it that a supported compiler cannot parse).
Usage: layering.py <source folder>
"""

import pathlib
import re
import sys

ALLOWED = {
    "core": {"core"},
    "ops": {"core", "ops"},
    "backends": {"core", "backends"},
    "nn": {"core", "ops", "nn"},
    "interop": {"core", "ops", "interop"},
    "examples": {"core", "ops", "nn", "examples", "reel.h"},
    "reel.h": {"core", "ops", "nn"},
}
PUBLIC = {"core", "ops", "nn", "interop", "reel.h"}
UNPARSED = {"format", "ranges", "source_location"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def is_standard(name):
    return re.fullmatch(r"[a-z_]+|(math|stddef|stdint|string)\.h", name) is not None


def problems_of(root, path):
    layer = path.relative_to(root).parts[0]
    public = layer in PUBLIC and path.suffix == ".h"
    interop = "interop" in path.parts
    for kind, name in INCLUDE.findall(path.read_text()):
        if kind == '"' or name.startswith("reel/"):
            parts = name.split("/")
            if parts[0] != "reel" or ".." in parts or (kind == "<" and layer != "examples"):
                yield f'includes {name}: spell it "reel/<folder>/<file>"'
            elif parts[1] not in ALLOWED[layer]:
                yield f"includes {name}: {layer} may include {', '.join(sorted(ALLOWED[layer]))} only"
        elif public and name in UNPARSED:
            yield f"includes <{name}>, which a supported compiler lacks"
        elif public and not interop and not is_standard(name):
            yield f"includes <{name}>: public headers take the standard library only"


def backend_problems(root, path):
    """One backend knows nothing of another; only backends.cpp knows them all."""
    parts = path.relative_to(root).parts
    if parts[0] != "backends" or len(parts) < 3:
        return
    for _, name in INCLUDE.findall(path.read_text()):
        if name.startswith("reel/backends/") and not name.startswith(f"reel/backends/{parts[1]}/"):
            yield f"includes {name}: backends/{parts[1]} may not know another backend"


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    files = [root / "reel.h"]
    for folder in sorted(ALLOWED.keys() - {"reel.h"}):
        files += sorted(p for p in (root / folder).rglob("*") if p.suffix in {".h", ".cpp", ".cu", ".cuh"})
    count = 0
    for path in files:
        for problem in [*problems_of(root, path), *backend_problems(root, path)]:
            print(f"{path.relative_to(root)} {problem}")
            count += 1
    print(f"{len(files)} files, {count} problems")
    return 1 if count or len(files) < 2 else 0


if __name__ == "__main__":
    sys.exit(main())
