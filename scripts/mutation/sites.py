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

GRADIENT_NAMES = {"dy", "dz", "dx", "dc", "ddy"}
NEGATED = "negated"  # declared in the header that trial.py puts before such a mutant

# Mutants that no test can tell from the original, as (file, function, the line's text or *, the change or *, why).
EXCLUDED = [
    ("core/scalar/unary.h", "Sign::derivative", "*", "*", "-0 is 0"),
    ("backends/cpu/cross_entropy.cpp", "gradient_row", "*if (lse > T(8)*", "*", "both ways give the gradient"),
    ("ops/convert.cpp", "to", "*", "*", "the gradient tests have one device, where it moves nothing"),
    ("core/checkpoint.cpp", "Recompute::again", "*return joined*", "*", "what comes back to it is not looked at"),
    ("ops/normalize.cpp", "recorded_gradients", "*first + mean(x - first*", "*", "centred again: what is the same along a row cancels"),
    ("ops/reduce.cpp", "mean", "*shape.size() == 0*", "*", "there is no element to be wrong"),
]


@dataclass(frozen=True)
class Site:
    path: str
    function: str
    line: int
    begin: int  # the text from here
    end: int  # to here
    replacement: str
    change: str  # as it is shown
    serves: tuple  # the kernels, callbacks or formulas that it is part of

    @property
    def needs_tensors(self):
        return NEGATED in self.replacement


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


def takes_gradient(function):
    params = function.param_text()
    if "Gradients" in params:
        return True
    gradients = [i for i, word in enumerate(params) if word in GRADIENT_NAMES]
    return "Tensor" in params and any(params[i - 1] in ("&", "Tensor") for i in gradients)


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


# --- what the operands of an operator are -------------------------------------------------------------------------------


class Kinds:
    """Tells numbers that gradients are made of from sizes, indices and pointers."""

    def __init__(self, files):
        self.outside, self.results = {}, {}
        for file in files:
            for name, kinds in file.results.items():
                self.results.setdefault(name, set()).update(kinds)
            last = 0
            for function in file.functions:
                cpp.declared(file, last, function.params[0], self.outside)
                last = function.body[1]
            cpp.declared(file, last, len(file.tokens), self.outside)

    def names_in(self, function):
        return cpp.declared(function.file, function.params[0], function.body[1])

    def of_name(self, name, names, subscripted):
        kinds = names.get(name) or self.outside.get(name) or (None, None)
        return kinds[1 if subscripted else 0]

    def of_call(self, name):
        if name in cpp.VALUES:
            return "value"
        if name in cpp.COUNTS:
            return "count"
        kinds = self.results.get(name, set()) - {None}
        return kinds.pop() if len(kinds) == 1 else None

    def ending(self, file, i, names):
        """The kind of the operand whose last token is i, and the index of its first."""
        tokens, text = file.tokens, file.tokens[i].text
        if tokens[i].kind == "number":
            is_count = "." not in text and not (("e" in text or "p" in text) and not text.startswith("0x"))
            return (None if is_count else "value"), i
        if tokens[i].kind == "name":
            begin = self.chain(file, i)
            is_member = tokens[i - 1].text in (".", "->")
            if tokens[i - 1].text == "::" and "numbers" in [t.text for t in tokens[begin:i]]:
                return "value", begin
            if is_member:
                kinds = self.outside.get(tokens[i].text, (None, None))
                return kinds[0], begin
            return self.of_name(tokens[i].text, names, False), begin
        if text == "]":
            opening = file.partner[i]
            while tokens[opening - 1].text == "]":
                opening = file.partner[opening - 1]
            if tokens[opening - 1].kind != "name":
                return None, opening
            name = tokens[opening - 1].text
            is_member = tokens[opening - 2].text in (".", "->")
            kind = self.outside.get(name, (None, None))[1] if is_member else self.of_name(name, names, True)
            return kind, self.chain(file, opening - 1)
        if text == ")":
            opening = file.partner[i]
            before = opening - 1
            if tokens[before].text == ">":
                angle = file.open_angle(before)
                inside = [t.text for t in tokens[angle + 1:before]]
                name = tokens[angle - 1].text
                kind = self.of_call(name) if name not in ("static_cast", "max", "min") else cpp.kind_of_type(inside)
                return kind, self.chain(file, angle - 1)
            if tokens[before].kind == "name" and tokens[before].text not in cpp.KEYWORDS:
                return self.of_call(tokens[before].text), self.chain(file, before)
            return self.inside(file, opening + 1, i, names), opening
        if text == ">":
            angle = file.open_angle(i)
            return self.of_name(tokens[angle - 1].text, names, False), angle - 1
        return None, i

    def chain(self, file, i):
        """The first token of a.b->c::d that ends at name i."""
        tokens = file.tokens
        while i > 0 and tokens[i - 1].text in (".", "->", "::"):
            i -= 2
            if tokens[i].text in (")", "]"):
                i = file.partner[i] - 1
                while tokens[i].text == "]":
                    i = file.partner[i] - 1
            elif tokens[i].text == ">":
                i = file.open_angle(i) - 1
        return i

    def inside(self, file, begin, end, names):
        kinds = set()
        for i in range(begin, end):
            if file.tokens[i].kind == "name":
                following = file.tokens[i + 1].text
                kinds.add(self.of_name(file.tokens[i].text, names, following == "["))
            elif file.tokens[i].kind == "number":
                kinds.add(self.ending(file, i, names)[0])
        return "value" if "value" in kinds else "count" if kinds & {"count", "pointer"} else None

    def before(self, file, i, names):
        """The kind of the term (a product of factors) that ends before token i."""
        kinds, i = set(), i - 1
        while True:
            kind, begin = self.ending(file, i, names)
            kinds.add(kind)
            if file.tokens[begin - 1].text not in ("*", "/", "%"):
                return joined(kinds)
            i = begin - 2

    def after(self, file, i, names):
        """The kind of the term that begins after token i."""
        tokens, kinds, i = file.tokens, set(), i + 1
        while True:
            while tokens[i].text in ("-", "+", "*", "&", "!", "~"):
                i += 1
            while True:  # to the last token of a.b(c)[d]
                following = tokens[i + 1].text
                if tokens[i].text in ("(", "[", "{"):
                    i = file.partner[i]
                elif following in (".", "->", "::"):
                    i += 2
                elif following in ("(", "["):
                    i += 1
                elif following == "<" and self.is_template(file, i + 1):
                    i = file.skip_angles(i + 1) - 1
                else:
                    break
            kinds.add(self.ending(file, i, names)[0])
            if tokens[i + 1].text not in ("*", "/", "%"):
                return joined(kinds)
            i += 2

    def is_template(self, file, i):
        close = file.skip_angles(i)
        words = [t.text for t in file.tokens[i + 1:close - 1]]
        return close < len(file.tokens) and file.tokens[close].text in ("(", "::", ")", ",", ";", "{") and \
            all(w.isidentifier() or w in ("::", ",", "<", ">") or w.isdigit() for w in words)


def joined(kinds):
    for kind in ("pointer", "count", "value"):
        if kind in kinds:
            return kind
    return None


# --- mutations ----------------------------------------------------------------------------------------------------------


class Mutator:
    def __init__(self, kinds, serves, function, tensors, whole_names):
        self.kinds, self.serves, self.function, self.file = kinds, serves, function, function.file
        self.tensors = tensors  # values are Tensors: a minus in front is a call
        self.tokens = function.file.tokens
        self.names = whole_names
        self.sites = []

    def add(self, begin, end, replacement, change):
        self.sites.append(Site(self.file.path, self.function.label, self.file.line(begin), begin, end, replacement,
                               change, self.serves))

    def inner_ranges(self):
        return [f.body for f in self.function.lambdas if takes_gradient(f)] if self.tensors else []

    def positions(self):
        """Tokens of the function that are no part of a subscript, a loop's head or a nested backward function."""
        i, end = self.function.body
        skipped = dict(self.inner_ranges())
        while i < end:
            text = self.tokens[i].text
            if i in skipped:
                i = skipped[i]
                continue
            is_subscript = text == "[" and (self.tokens[i - 1].kind == "name" or self.tokens[i - 1].text in (")", "]"))
            is_head = text == "(" and self.tokens[i - 1].text == "for"
            # Coefficients are data: those of high degree are below what differences can see.
            is_table = text == "(" and self.tokens[i - 1].text == "polynomial"
            if is_subscript or is_head or is_table:
                i = self.file.partner[i] + 1
                continue
            yield i
            i += 1

    def operand_before(self, i):
        token = self.tokens[i - 1]
        return (token.kind in ("name", "number") and token.text not in cpp.KEYWORDS) or token.text in (")", "]")

    def flips(self):
        for i in self.positions():
            token = self.tokens[i]
            if token.text in ("+", "-") and self.operand_before(i):
                sides = self.kinds.before(self.file, i, self.names), self.kinds.after(self.file, i, self.names)
                if "value" in sides and not {"count", "pointer"} & set(sides):
                    self.swap(i, "-" if token.text == "+" else "+")
            elif token.text == "-":
                following = self.tokens[i + 1]
                kind = self.kinds.after(self.file, i, self.names)
                in_cast = self.tokens[i - 1].text == "(" and self.tokens[i - 2].text in cpp.VALUES
                if kind == "value" or (in_cast and following.kind == "number"):
                    self.add(token.begin, token.end, "", f"drop - of {self.shown(i, i + 2)}")
            elif token.text in ("+=", "-="):
                if self.kinds.before(self.file, i, self.names) == "value":
                    self.swap(i, "-=" if token.text == "+=" else "+=")
            elif token.text == "fma" and self.tokens[i + 1].text == "(":
                begin, end = i + 2, self.argument_end(i + 2)
                self.add(self.tokens[begin].begin, self.tokens[end - 1].end, f"-({self.file.text_of(begin, end)})",
                         f"negate first factor of fma({self.shown(begin, end)}, ...)")
            elif token.text == "neg" and self.tokens[i + 1].text == "(":
                self.add(token.begin, token.end, "", f"drop neg of {self.shown(i, self.file.partner[i + 1] + 1)}")

    def negations(self):
        """Gradients that are handed over; where signs are flipped already, only to the tape."""
        flipped = bool(self.sites)
        for i in self.positions():
            token, following = self.tokens[i], self.tokens[i + 1].text
            if self.tensors:
                self.tensor_negations(i, token, following, flipped)
            elif not flipped and token.text == "return" and self.returns_value() and not self.in_lambda(i):
                braces = self.tokens[i + 1].text == "{"
                self.wrap(i + 1 + braces, self.statement_end(i) - braces, "-(", "return ")
            elif not flipped and token.text == "=" and self.tokens[i - 1].text == "]":
                if self.kinds.before(self.file, i, self.names) == "value" and self.tokens[i + 1].text != "0":
                    self.wrap(i + 1, self.statement_end(i), "-(", "store ")

    def tensor_negations(self, i, token, following, flipped):
        if token.text == "g" and following == "." and self.tokens[i + 2].text == "add":
            begin = self.argument_end(i + 4) + 1
            self.wrap(begin, self.argument_end(begin), NEGATED + "(", "")
        elif token.text == "return" and not flipped and self.returns_tensor() and not self.in_lambda(i):
            self.wrap(i + 1, self.statement_end(i), NEGATED + "(", "return ")
        elif token.text in ("accumulate", "copy") and following == "(" and self.tokens[i - 1].text == ".":
            end = self.argument_end(i + 2)
            if [t.text for t in self.tokens[end - 4:end]] == [".", "array", "(", ")"]:
                self.wrap(i + 2, end - 4, NEGATED + "(", f"{token.text} ")
        elif token.text == "destination" and self.tokens[i - 1].text == "." and self.tokens[i - 3].text == ",":
            begin = self.call_begin(i)
            self.wrap(begin, self.argument_end(begin), NEGATED + "(", "add ")
        elif token.text == "add" and [t.text for t in self.tokens[i - 2:i]] == ["BinaryOp", "::"]:
            self.add(token.begin, token.end, "sub", "BinaryOp::add -> BinaryOp::sub")

    # Ranges of tokens.

    def argument_end(self, i):
        while self.tokens[i].text not in (",", ")", "}"):
            i = self.file.partner[i] + 1 if self.tokens[i].text in ("(", "[", "{") else i + 1
        return i

    def statement_end(self, i):
        while self.tokens[i].text != ";":
            i = self.file.partner[i] + 1 if self.tokens[i].text in ("(", "[", "{") else i + 1
        return i

    def call_begin(self, i):
        depth = 0
        while depth < 1:
            i -= 1
            depth += {"(": 1, ")": -1}.get(self.tokens[i].text, 0)
        return i + 1

    def in_lambda(self, i):
        return any(f.body[0] <= i < f.body[1] for f in self.function.lambdas)

    def returns_value(self):
        words = [t.text for t in self.function.result]
        return cpp.kind_of_type(words) == "value" and not {"Vec", "Pack"} & set(words)  # which have no minus

    def returns_tensor(self):
        words = [t.text for t in self.function.result]
        if not words:  # a lambda
            return takes_gradient(self.function) and "Gradients" not in self.function.param_text()
        return "Tensor" in words and "&" not in words and "*" not in words

    # Changes.

    def shown(self, begin, end):
        return " ".join(self.file.text_of(begin, end).split())

    def swap(self, i, new):
        old = self.tokens[i]
        self.add(old.begin, old.end, new, f"{old.text} -> {new} in {self.near(i)}")

    def near(self, i):
        """The text around a token: whole tokens, about as many as fit on a line beside the rest."""
        first = last = i
        while self.tokens[first - 1].text not in (";", "{", "}") and self.width(first - 1, i) <= 24:
            first -= 1
        while self.tokens[last + 1].text not in (";", "{", "}") and self.width(i, last + 1) <= 24:
            last += 1
        return self.shown(first, last + 1)

    def width(self, first, last):
        return self.tokens[last].end - self.tokens[first].begin

    def wrap(self, begin, end, opening, what):
        text = self.file.text_of(begin, end)
        self.add(self.tokens[begin].begin, self.tokens[end - 1].end, f"{opening}{text})",
                 f"negate {what}{' '.join(text.split())[:60]}")


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


def names_around(kinds, function):
    """Variables of the function and, for a lambda, of the functions around it."""
    names = {}
    for outer in function.file.functions:
        if outer.body[0] <= function.body[0] and function.body[1] <= outer.body[1]:
            names.update(kinds.names_in(outer))
    names.update(kinds.names_in(function))
    return names
