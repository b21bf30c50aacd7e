"""What scripts/bench writes into pages, and the README's figures, which come from those pages."""

import re
import textwrap

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
PAGES = ("docs/performance.md", "docs/performance-avx2.md")
# {row} is Reel's time, {row/peer} the peer's over Reel's, each with AVX-512 and, in brackets, with AVX2. The words
# around them say what is faster: read them again when the figures are new.
TEXT = """\
It is fast where models are small: on two cores with AVX-512 (in brackets on those of the page for AVX2, which may be another
machine's), a training step of an MLP of 64-64-10 takes {mlp_64_64_10_sgd}, and with PyTorch's C++ API {mlp_64_64_10_sgd/torch}
times as long; one of a small ConvNet {cnn_28}, and {cnn_28/torch} times as long. Others come close to it or pass it: oneDNN takes
{gemm_1056/onednn} of Reel's time for the product of two 1056 x 1056 matrices, PyTorch {add_transposed/torch} of it for adding two
transposed matrices, whose sum it leaves transposed, and {conv_64_256/torch channels last} for a convolution of 64 channels of 256 x 256 pixels if its user lays the
channels last (below 1, that is less); and a training step of an MLP of 784-512-512-10, nearly all of it products, takes PyTorch no more than
{mlp_784_512_512_10_sgd/torch} times as long.
All rows, peers and the machine's limits are in [docs/performance.md](docs/performance.md) and, for AVX2,
[docs/performance-avx2.md](docs/performance-avx2.md) (of {date}), and those of a machine of Intel's in
[docs/performance-intel.md](docs/performance-intel.md); `scripts/bench` measures the same on your machine."""


def figure(page, name):
    """What a page tells of `row` or `row/peer`, or of `date`. ValueError if it does not."""
    row, _, peer = name.partition("/")
    place = r"^Measured (\S+)" if name == "date" else rf"^\| {re.escape(row)} \| ([^|]+) \| ([^|]*) \|"
    found = re.search(place, page, re.MULTILINE)
    if found and peer:
        found = re.search(rf"(?:^|; ){re.escape(peer)} (?:\([^)]*\) )?[\d.]+ \w+, \*\*([\d.]+)x\*\*", found.group(2))
    if not found:
        raise ValueError(f"'{page.splitlines()[0]}' tells no {name}")
    return found.group(1)


def paragraph(pages):
    """Of the texts of PAGES; of a row younger than the second one, what the first one tells."""
    def both(match):
        with_avx512 = figure(pages[0], match.group(1))
        try:
            with_avx2 = figure(pages[1], match.group(1))
        except ValueError:
            return with_avx512
        if match.group(1) == "date":
            return " and ".join(dict.fromkeys((with_avx512, with_avx2)))
        return f"{with_avx512} ({with_avx2})"

    return "\n".join(textwrap.wrap(re.sub(r"\{(.+?)\}", both, TEXT), 126, break_long_words=False, break_on_hyphens=False))


def with_measured(text, body):
    """The text of a page with another body between the markers."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + "\n" + body + "\n" + END + rest.split(END)[1]


def update_readme(root):
    path = root / "README.md"
    path.write_text(with_measured(path.read_text(), paragraph([(root / page).read_text() for page in PAGES])))
