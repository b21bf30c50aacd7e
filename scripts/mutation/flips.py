"""What can be flipped in a backward function."""

from dataclasses import dataclass

from . import cpp

GRADIENT_NAMES = {"dy", "dz", "dx", "dc", "ddy"}
NEGATED = "negated"  # declared in the header that trial.py puts before such a mutant


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


def takes_gradient(function):
    params = function.param_text()
    if "Gradients" in params:
        return True
    gradients = [i for i, word in enumerate(params) if word in GRADIENT_NAMES]
    return "Tensor" in params and any(params[i - 1] in ("&", "Tensor") for i in gradients)


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
                if self.kinds.before(self.file, i, self.names) == "value" and self.tokens[i + 1].text not in ("0", "{"):
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
