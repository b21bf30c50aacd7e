"""Where the tree computes gradients, and what can be flipped there.

Backward functions are
  - kernels: CpuOps's methods with `backward` in their names, and what only they reach;
  - formulas: the `derivative` functions of core/scalar/unary*.h, and what only they reach;
  - callbacks: lambdas and functions of core/, ops/ and nn/ that take `Gradients&` or a gradient (dy, dz, ...), and local
    functions that only those reach;
  - core/sweep.cpp, which adds up what the callbacks give.
The CUDA backend's kernels are not read: their formulas are those of core/scalar, and a test compares their gradients with the
CPU's.
"""

import fnmatch
import pathlib
from dataclasses import dataclass

from . import cpp
from .flips import Mutator, takes_gradient
from .kinds import Kinds, names_around

# Mutants that no test can tell from the original, as (file, function, the line's text or *, the change or *, why).
EXCLUDED = [
    ("backends/cpu/pool.cpp", "spread_row_2x2", "*+ V::zero();", "+ -> -*", "-0 is 0"),
    ("core/scalar/unary.h", "Sign::derivative", "*", "*", "-0 is 0"),
    ("ops/convert.cpp", "to", "*", "*", "the gradient tests have one device, where it moves nothing"),
    ("core/checkpoint.cpp", "Recompute::again", "*return joined*", "*", "what comes back to it is not looked at"),
    ("ops/normalize.cpp", "no_gradients", "*", "negate zeros(*", "-0 is 0"),
    ("ops/normalize.cpp", "room", "*", "*", "what is in it is written over"),
    ("ops/reduce.cpp", "share_of_mean", "*shape.size() == 0*", "*", "there is no element to be wrong"),
]


@dataclass
class Backward:
    """One backward function, with what can be flipped in it."""
    function: cpp.Function
    serves: tuple
    sites: list


# --- finding backward functions -----------------------------------------------------------------------------------------


class Mentions:
    """Who mentions whom by name. A name means what the file itself defines, else what others do outside of anonymous
    namespaces; the name of a struct means all its functions; macros and tables are like functions."""

    def __init__(self, files, without=()):
        self.definitions = {}  # name -> files; None stands for all that do not define it themselves
        self.mentioning = []  # (file, name, names that it mentions, the function or None)
        for file in files:
            for function in file.functions:
                name = function.owner or function.name
                self.definitions.setdefault(name, set()).update({file.path} if function.local else {file.path, None})
                self.mentioning.append((file.path, name, function.names(without), function))
            for function in without:  # lambdas with a role of their own
                self.mentioning.append((file.path, "", function.names(without), function))
            for name, names in file.texts.items():
                self.definitions.setdefault(name, set()).add(file.path)
                self.mentioning.append((file.path, name, names, None))

    def unit(self, path, name):
        """Where `name` is defined as a reader of file `path` sees it; None if nowhere."""
        where = self.definitions.get(name, ())
        return (path, name) if path in where else (None, name) if None in where else None

    def backward(self, roots, local):
        """The functions that only `roots`, and others of this kind, mention; if `local`, of those in anonymous namespaces.
        Returns {id of function: the roots that it serves}."""
        served = {id(f): {f.label} for f in roots}
        mentioned = {}
        for path, name, names, function in self.mentioning:
            for unit in {self.unit(path, n) for n in names} - {None, (path, name), (None, name)}:
                if not local or None not in self.definitions[unit[1]]:
                    mentioned.setdefault(unit, []).append((path, name, function))
        units, before = {}, None
        while before != (units, served):
            before = dict(units), dict(served)
            for unit, by in mentioned.items():
                sources = [served.get(id(f)) if f is not None else units.get((path, name)) for path, name, f in by]
                if all(sources):
                    units[unit] = set().union(*sources)
            for path, name, _, function in self.mentioning:
                found = units.get((path, name), set()) | units.get((None, name), set())
                if found and function is not None and not any(function is f for f in roots):
                    served[id(function)] = found
        return served


def chosen_of(files, roots, local=False, lambdas=()):
    served = Mentions(files, lambdas).backward(roots, local)
    functions = [f for file in files for f in file.functions] + list(lambdas)
    return [(f, tuple(sorted(served[id(f)]))) for f in functions if id(f) in served]


def kernels(files):
    roots = [f for file in files for f in file.functions if f.owner == "CpuOps" and "backward" in f.name]
    return chosen_of(files, roots), roots


def formulas(files):
    lists = [f for file in files if fnmatch.fnmatch(file.path, "core/scalar/unary*.h") for f in file.functions]
    roots = [f for f in lists if f.name == "derivative"]
    return chosen_of(files, roots), roots


def with_lambdas(function):
    yield function
    for inner in function.lambdas:
        yield from with_lambdas(inner)


def callbacks(files):
    chosen, roots = [], []
    for file in files:
        ours = [f for outer in file.functions for f in with_lambdas(outer) if takes_gradient(f)]
        lambdas = [f for f in ours if not any(f is g for g in file.functions)]
        roots += ours
        chosen += chosen_of([file], ours, True, lambdas)
        if file.path == "core/sweep.cpp":
            chosen += [(f, (f.label,)) for f in file.functions if not any(f is g for g, _ in chosen)]
    return chosen, roots


# --- all of the tree ----------------------------------------------------------------------------------------------------


def exclusion_of(site, line, excluded):
    for entry in excluded:
        path, function, text, change, _ = entry
        if site.path == path and all(map(fnmatch.fnmatchcase, (site.function, line, site.change), (function, text, change))):
            return entry
    return None


def read(root, *patterns):
    paths = sorted({p for pattern in patterns for p in root.glob(pattern)})
    return [cpp.File(str(p.relative_to(root)), p.read_text()) for p in paths]


def backward_functions(root, excluded=EXCLUDED):
    """All backward functions of the tree at `root`, and complaints about what this file has no answer to."""
    root = pathlib.Path(root)
    scalar, cpu = read(root, "core/scalar/*.h"), read(root, "backends/cpu/*.h", "backends/cpu/*.cpp")
    taped = read(root, "core/*.cpp", "core/*.h", "ops/*.cpp", "ops/*.h", "nn/*.cpp", "nn/*.h")
    found, complaints = [], []
    for (chosen, roots), files, tensors in [(kernels(cpu), cpu + scalar, False), (formulas(scalar), scalar, False),
                                            (callbacks(taped), taped, True)]:
        kinds = Kinds(files)
        for function, serves in chosen:
            mutator = Mutator(kinds, serves, function, tensors, names_around(kinds, function))
            mutator.flips()
            mutator.negations()
            found.append(Backward(function, serves, mutator.sites))
        if not roots:
            complaints.append("no backward function was found in one of the groups: has a folder or a name changed?")
        folder = "" if not tensors else ("ops/", "nn/")  # core/ has functions that only pass gradients through
        mutable = {(b.function.file.path if tensors else "", root) for b in found if b.sites for root in b.serves}
        complaints += [f"{f.file.path}: nothing to flip in {f.label}" for f in roots if f.file.path.startswith(folder)
                       and (f.file.path if tensors else "", f.label) not in mutable and not hands_on(f, roots)]

    used = set()
    for backward in found:
        lines = backward.function.file.text.split("\n")
        entries = {site: exclusion_of(site, lines[site.line - 1], excluded) for site in backward.sites}
        used.update(entries.values())
        backward.sites = [site for site, entry in entries.items() if entry is None]
    complaints += [f"an exclusion fits nothing any more: {entry}" for entry in excluded if entry not in used]
    return [b for b in found if b.sites], complaints


def hands_on(function, roots):
    """Whether it leaves its gradients to another backward function."""
    return bool(function.names() & {f.name for f in roots if f is not function and f.name != function.name})
