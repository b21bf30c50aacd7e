"""What the operands of an operator are: numbers that gradients are made of, sizes and indices, or pointers."""

from . import cpp


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


def names_around(kinds, function):
    """Variables of the function and, for a lambda, of the functions around it."""
    names = {}
    for outer in function.file.functions:
        if outer.body[0] <= function.body[0] and function.body[1] <= outer.body[1]:
            names.update(kinds.names_in(outer))
    names.update(kinds.names_in(function))
    return names
