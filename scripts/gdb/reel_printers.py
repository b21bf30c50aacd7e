"""Shows Reel's values in gdb: `print x` gives f32 [2, 3] = {0.5, 1, ...} instead of a pointer.

In gdb, or in ~/.gdbinit:  source <prefix>/share/reel/gdb/reel_printers.py
Elements of tensors on the CPU are read from memory, as many as `set print elements` allows; nothing is called.
"""

import struct

import gdb
import gdb.printing

CTYPES = {"f32": "float", "f64": "double", "bf16": "unsigned short", "f16": "unsigned short", "i32": "int",
          "i64": "long", "u8": "unsigned char", "bool8": "bool"}


def half_text(bits, dtype):
    """A bf16 is the first half of a float; an f16 has a format of its own."""
    number = struct.unpack("<f", struct.pack("<I", bits << 16)) if dtype == "bf16" else \
        struct.unpack("<e", struct.pack("<H", bits))
    return "%.5g" % number


def shape_of(shape):
    return [int(shape["dims_"][i]) for i in range(int(shape["rank_"]))]


def texts(array, limit):
    """The first elements in row-major order, and whether there are more."""
    shape = shape_of(array["shape"])
    dtype = str(array["dtype"]).split("::")[-1]
    element = gdb.lookup_type(CTYPES[dtype])
    data = array["data"].cast(element.pointer())
    count = int(array["size"])
    result = []
    for flat in range(min(count, limit)):
        place = 0
        for axis in reversed(range(len(shape))):
            place += flat % shape[axis] * int(array["strides"][axis])
            flat //= shape[axis]
        text = half_text(int(data[place]), dtype) if element.sizeof == 2 else str(data[place])
        result.append(text.split(" ")[0] if element.sizeof == 1 else text)  # 65 'A'
    return result, count > limit


def array_text(array):
    device = array["device"]
    name = str(device["type"]).split("::")[-1]
    head = "%s %s" % (str(array["dtype"]).split("::")[-1], shape_of(array["shape"]))
    if name != "cpu":
        return "%s on %s:%d" % (head, name, int(device["index"]))
    limit = gdb.parameter("print elements") or 200
    try:
        elements, more = texts(array, min(limit, 200))
    except gdb.MemoryError as error:
        return "%s <%s>" % (head, error)
    return "%s = {%s%s}" % (head, ", ".join(elements), "..." if more else "")


def tensor_text(tensor):
    state = tensor["state_"]
    return "undefined" if int(state) == 0 else array_text(state["array"])


class Printer:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        try:
            return self.text()
        except gdb.MemoryError:  # not set yet, say; gdb tells of it
            raise
        except gdb.error as error:
            return "<%s: clang tells of a library's types with -fstandalone-debug>" % str(error).rstrip(".")


class ShapePrinter(Printer):
    def text(self):
        return str(shape_of(self.value))


class TensorPrinter(Printer):
    def text(self):
        return tensor_text(self.value)


class TensorsPrinter(Printer):
    """The first four are inside, others in a vector."""

    def text(self):
        return "%d tensors" % int(self.value["size_"]["count"])

    def children(self):
        more = self.value["more_"]["_M_impl"]["_M_start"]
        for i in range(int(self.value["size_"]["count"])):
            yield "[%d]" % i, self.value["few_"][i] if i < 4 else more[i - 4]

    def display_hint(self):
        return "array"


class RaggedPrinter(Printer):
    def text(self):
        state = self.value["offsets_"]["state_"]
        count = int(state["count"])
        offsets = (state + 1).cast(gdb.lookup_type("long").pointer())
        lengths = [int(offsets[i + 1] - offsets[i]) for i in range(min(count, 20))]
        text = ", ".join(map(str, lengths)) + (", ..." if count > 20 else "")
        return "%d sequences of lengths {%s}: %s" % (count, text, tensor_text(self.value["values_"]))


class ParameterPrinter(Printer):
    def text(self):
        state = self.value["state_"]["_M_ptr"]
        if int(state) == 0:
            return "undefined"
        name = state["name"]["_M_dataplus"]["_M_p"].string()
        return "parameter '%s' %s" % (name, tensor_text(state["value"]))


def printers():
    collection = gdb.printing.RegexpCollectionPrettyPrinter("reel")
    collection.add_printer("Shape", "^reel::Shape$", ShapePrinter)
    collection.add_printer("Tensor", "^reel::Tensor$", TensorPrinter)
    collection.add_printer("Tensors", "^reel::Tensors$", TensorsPrinter)
    collection.add_printer("Ragged", "^reel::Ragged$", RaggedPrinter)
    collection.add_printer("Parameter", "^reel::Parameter$", ParameterPrinter)
    return collection


gdb.printing.register_pretty_printer(None, printers(), replace=True)
