"""Enough of C++ to find functions, lambdas and what their names stand for: no parser, but one that knows this tree's style."""

import re
from dataclasses import dataclass, field

TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/)
      | (?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])')
      | (?P<number>\.?\d(?:[eEpP][+-]|[\w.])*(?:'\d+)*)
      | (?P<name>[A-Za-z_]\w*)
      | (?P<op>::|->|\+\+|--|<=|>=|==|!=|&&|\|\||[+\-*/%&|^]=|.)""",
    re.VERBOSE | re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*", re.MULTILINE)
MACRO = re.compile(r"#\s*define\s+(\w+)(.*)", re.DOTALL)

# What a name declared with one of these types holds: a number that gradients are made of, or one that counts.
VALUES = {"T", "V", "Vec", "Pack", "Tensor", "float", "double", "Raw"}
COUNTS = {"int64_t", "int32_t", "uint8_t", "uint32_t", "uint64_t", "size_t", "int", "unsigned", "long", "char", "bool",
          "Shape", "Axes", "Index", "DType", "Bits"}
KEYWORDS = {"return", "case", "else", "if", "while", "for", "switch", "do", "new", "delete", "throw", "sizeof"}


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    begin: int
    end: int


@dataclass
class Function:
    file: "File"
    name: str
    owner: str  # the struct it belongs to, or ""
    local: bool  # in an anonymous namespace of a .cpp file
    begin: int  # its first token
    result: list  # tokens of the result's type
    params: tuple  # token range, without the parentheses
    body: tuple  # likewise, without the braces
    lambdas: list = field(default_factory=list)  # those directly inside

    @property
    def label(self):
        return f"{self.owner}::{self.name}" if self.owner else self.name

    def param_text(self):
        return [t.text for t in self.file.tokens[slice(*self.params)]]

    def names(self, without=()):
        """Every name that it mentions outside of the functions `without`."""
        inner = [f.body for f in without if f is not self and self.body[0] <= f.body[0] < self.body[1]]
        return {t.text for i, t in enumerate(self.file.tokens[self.begin:self.body[1]], self.begin)
                if t.kind == "name" and not any(a <= i < b for a, b in inner)}


class File:
    """The tokens of one source file, its functions, its macros and its variables at namespace scope."""

    def __init__(self, path, text):
        self.path, self.text = path, text
        self.functions, self.texts, self.members, self.results = [], {}, {}, {}
        self.structs = {}  # name -> token range
        blanked = DIRECTIVE.sub(self._directive, text)
        self.tokens = [Token(m.lastgroup, m.group(), m.start(), m.end())
                       for m in TOKEN.finditer(blanked) if m.lastgroup != "skip"]
        self._match()
        self._scope(0, len(self.tokens), "", False)

    def _directive(self, found):
        macro = MACRO.match(found.group().strip())
        if macro:
            self.texts[macro[1]] = set(re.findall(r"[A-Za-z_]\w*", macro[2]))
        return re.sub(r"[^\n]", " ", found.group())

    def _match(self):
        self.partner, stack = {}, []
        for i, token in enumerate(self.tokens):
            if token.kind != "op":
                continue
            if token.text in "([{":
                stack.append(i)
            elif token.text in ")]}":
                opening = stack.pop()
                self.partner[opening], self.partner[i] = i, opening

    def line(self, position):
        return self.text.count("\n", 0, position) + 1

    def text_of(self, begin, end):
        return self.text[self.tokens[begin].begin:self.tokens[end - 1].end]

    def skip_angles(self, i):
        """The index behind <...> that opens at i."""
        depth = 0
        while i < len(self.tokens):
            text = self.tokens[i].text
            if text in "([{":
                i = self.partner[i]
            elif text == "<":
                depth += 1
            elif text == ">":
                depth -= 1
                if depth == 0:
                    return i + 1
            i += 1
        return i

    def open_angle(self, i):
        """The index of the < that the > at i closes."""
        depth = 0
        while i >= 0:
            text = self.tokens[i].text
            if text in ")]}":
                i = self.partner[i]
            elif text == ">":
                depth += 1
            elif text == "<":
                depth -= 1
                if depth == 0:
                    return i
            i -= 1
        return 0

    # --- scopes ---------------------------------------------------------------------------------------------------------

    def _scope(self, i, end, owner, local):
        start = i
        while i < end:
            text = self.tokens[i].text
            if text == "{":
                close = self.partner[i]
                if self._enter(start, i, close, owner, local):
                    start = close + 1
                i = close
            elif text in "([":
                i = self.partner[i]
            elif text == ";":
                self._declaration(start, i, owner)
                start = i + 1
            elif text == ":" and self.tokens[i - 1].text in ("public", "private", "protected"):
                start = i + 1
            i += 1

    def _without_template(self, start, end):
        while start < end and self.tokens[start].text == "template":
            start = self.skip_angles(start + 1)
        return start

    def _enter(self, start, opening, close, owner, local):
        """What the braces belong to. False for those of an initialiser, which end no declaration."""
        start = self._without_template(start, opening)
        head = [t.text for t in self.tokens[start:opening]]
        if head[:1] == ["namespace"] or head[:2] == ["inline", "namespace"]:
            self._scope(opening + 1, close, owner, local or (head == ["namespace"] and self.path.endswith(".cpp")))
            return True
        paren = self._params(start, opening)
        if paren is not None and "=" not in [t.text for t in self.tokens[start:paren]]:
            self._function(start, paren, opening, close, owner, local)
            return True
        for i, word in enumerate(head):
            if word in ("struct", "class", "union") and "enum" not in head:
                names = [t.text for t in self.tokens[start + i + 1:opening] if t.kind == "name" and t.text != "REEL_API"]
                name = names[0] if names else owner
                self.structs.setdefault(name, []).append((opening + 1, close))
                self._scope(opening + 1, close, name, local)
                return True
        return False

    def _params(self, start, opening):
        """The ( of a function's parameters in its head."""
        i = start
        while i < opening:
            text, previous = self.tokens[i].text, self.tokens[i - 1]
            if text == "(":
                if previous.kind == "name" and previous.text not in ("__attribute__", "alignas", "decltype", "noexcept"):
                    return i
                if "operator" in [t.text for t in self.tokens[max(start, i - 3):i]]:
                    return i
                i = self.partner[i]
            elif text == "<" and previous.kind == "name" and previous.text != "operator":
                i = self.skip_angles(i) - 1
            i += 1
        return None

    def _function(self, start, paren, opening, close, owner, local):
        name = self.tokens[paren - 1].text if self.tokens[paren - 1].kind == "name" else "operator"
        before = paren - 1
        if before - 2 >= start and self.tokens[before - 1].text == "::":
            owner, before = self.tokens[before - 2].text, before - 2
        function = Function(self, name, owner, local, start, self.tokens[start:before],
                            (paren + 1, self.partner[paren]), (opening + 1, close))
        self._result(name, function.result)
        function.lambdas = self._lambdas(function, *function.body)
        self.functions.append(function)

    def _declaration(self, start, end, owner):
        start = self._without_template(start, end)
        paren = self._params(start, end)
        words = [t.text for t in self.tokens[start:end]]
        if paren is not None and "=" not in [t.text for t in self.tokens[start:paren]]:
            self._result(self.tokens[paren - 1].text, self.tokens[start:paren - 1])
            return
        names = [t.text for t in self.tokens[start:end] if t.kind == "name"]
        stop = next((i for i, w in enumerate(words) if w in ("=", "{", "[")), len(words))
        if not owner and stop > 0 and self.tokens[start + stop - 1].kind == "name":
            self.texts[words[stop - 1]] = set(names)  # a table: whoever uses it reaches all that is in it

    def _result(self, name, tokens):
        kinds = {kind_of_type([t.text for t in tokens])}
        self.results.setdefault(name, set()).update(kinds)

    def _lambdas(self, outer, begin, end):
        found, i = [], begin
        while i < end:
            if self.tokens[i].text == "[" and self._is_lambda(i):
                inner = self._lambda(outer, i, end)
                if inner is not None:
                    found.append(inner)
                    inner.lambdas = self._lambdas(inner, *inner.body)
                    i = inner.body[1]
            i += 1
        return found

    def _is_lambda(self, i):
        previous = self.tokens[i - 1]
        return not (previous.kind in ("name", "number", "string") and previous.text not in KEYWORDS) and \
            previous.text not in (")", "]", ">")

    def _lambda(self, outer, i, end):
        i = self.partner[i] + 1
        params = (i, i)
        while i < end and self.tokens[i].text != "{":
            if self.tokens[i].text == "<":
                i = self.skip_angles(i)
                continue
            if self.tokens[i].text == "(":
                if self.tokens[i - 1].text != "__attribute__":
                    params = (i + 1, self.partner[i])
                i = self.partner[i]
            elif self.tokens[i].text in (";", ",", ")"):
                return None
            i += 1
        if i >= end:
            return None
        return Function(self, outer.name, outer.owner, outer.local, params[0], [], params, (i + 1, self.partner[i]))


# --- what names stand for -----------------------------------------------------------------------------------------------


def kind_of_type(words):
    """"value", "count", "pointer" (to anything) or None, for the words of a type."""
    if "*" in words:
        return "pointer"
    for word in words:
        if word in VALUES:
            return "value"
        if word in COUNTS:
            return "count"
    return None


def declared(file, begin, end, found=None):
    """name -> (kind, what a subscript of it gives) for the variables declared in a range of tokens."""
    found = {} if found is None else found
    tokens, i = file.tokens, begin
    while i < end:
        word = tokens[i].text
        if word not in VALUES and word not in COUNTS:
            i += 1
            continue
        base = "value" if word in VALUES else "count"
        i += 1
        if i < end and tokens[i].text == "<":
            i = file.skip_angles(i)
        while i < end:  # declarators
            stars = references = 0
            while i < end and tokens[i].text in ("*", "&", "const", "__restrict", "("):
                stars += tokens[i].text == "*"
                references += tokens[i].text == "("
                i += 1
            if i + 1 >= end + 1 or i >= end or tokens[i].kind != "name":
                break
            name, after = tokens[i].text, tokens[i + 1].text if i + 1 < len(tokens) else ""
            if references and after == ")":
                i, after = i + 1, tokens[i + 2].text
            if after not in ("=", ";", ",", ")", "[", "{", ":", "("):
                break
            if after == "(" and stars == 0 and base == "count" and i + 1 < end and file.partner.get(i + 1, 0) >= end:
                break
            is_pointer = stars > 0 or after == "["
            kind = ("pointer" if is_pointer else base, base)
            found[name] = kind if found.get(name, kind) == kind else (None, None)
            i += 1
            while i < end and tokens[i].text not in (",", ";", ")", "}"):
                i = file.partner[i] + 1 if tokens[i].text in ("(", "[", "{") else i + 1
            if i >= end or tokens[i].text != ",":
                break
            i += 1
    return found
