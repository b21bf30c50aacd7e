"""Small SVG plots that can be read on a light page and on a dark one."""

import math

# Told apart with any colour vision, on white and on black.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8c6d00", "#56b4e9", "#7f7f7f")
STYLE = """<style>
text { font: 12px sans-serif; fill: #333 } .title { font-size: 14px; font-weight: bold }
.grid { stroke: #888; stroke-opacity: .3 } .line { fill: none; stroke-width: 2 } .one { stroke: #888; stroke-dasharray: 4 3 }
@media (prefers-color-scheme: dark) { text { fill: #ddd } }
</style>"""


def escape(text):
    return str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def text(x, y, words, anchor="start", kind=""):
    cls = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"{cls}>{escape(words)}</text>'


def document(width, height, parts):
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
                      STYLE, *parts, "</svg>", ""])


def ticks(low, high):
    """Round numbers on a logarithmic axis: 1, 2, 5, 10, ... or only powers of ten if those are many."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(powers) <= 4 else (1,)
    return [m * 10.0**p for p in powers for m in steps if low * 0.999 <= m * 10.0**p <= high * 1.001]


def number(value):
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def lines(title, x_label, y_label, series, x_ticks, one=False):
    """series: {name: [(x, y)]}, on logarithmic axes; `one`: a dashed line at y = 1."""
    points = [p for values in series.values() for p in values]
    if not points:
        return None
    low_y, high_y = min(y for _, y in points), max(y for _, y in points)
    if one:
        low_y, high_y = min(low_y, 1), max(high_y, 1)
    low_y, high_y = low_y / 1.2, high_y * 1.2
    low_x, high_x = min(x_ticks), max(x_ticks)
    left, top, width, height = 62, 40, 430, 270

    def at_x(x):
        return left + width * (math.log(x / low_x) / math.log(high_x / low_x) if high_x > low_x else 0.5)

    def at_y(y):
        return top + height * (1 - math.log(y / low_y) / math.log(high_y / low_y))

    parts = [text(left, 22, title, kind="title"), text(left + width / 2, top + height + 38, x_label, "middle"),
             f'<text transform="translate(14 {top + height / 2:.0f}) rotate(-90)" text-anchor="middle">{escape(y_label)}</text>']
    for y in ticks(low_y, high_y):
        parts += [f'<line class="grid" x1="{left}" x2="{left + width}" y1="{at_y(y):.1f}" y2="{at_y(y):.1f}"/>',
                  text(left - 6, at_y(y) + 4, number(y), "end")]
    for x in x_ticks:
        parts += [f'<line class="grid" x1="{at_x(x):.1f}" x2="{at_x(x):.1f}" y1="{top}" y2="{top + height}"/>',
                  text(at_x(x), top + height + 18, number(x), "middle")]
    if one:
        parts.append(f'<line class="one" x1="{left}" x2="{left + width}" y1="{at_y(1):.1f}" y2="{at_y(1):.1f}"/>')
    for i, (name, values) in enumerate(series.items()):
        color = COLORS[i % len(COLORS)]
        path = " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in values)
        parts.append(f'<polyline class="line" stroke="{color}" points="{path}"/>')
        parts += [f'<circle cx="{at_x(x):.1f}" cy="{at_y(y):.1f}" r="3" fill="{color}"/>' for x, y in values]
        parts += [f'<rect x="{left + width + 14}" y="{top + 20 * i}" width="12" height="12" fill="{color}"/>',
                  text(left + width + 32, top + 20 * i + 11, name)]
    return document(620, 370, parts)


def bars(title, unit, groups):
    """groups: [(name, {series: value})], horizontal bars from 0; a group's bars are told apart by colour."""
    names = list(dict.fromkeys(series for _, values in groups for series in values))
    most = max((v for _, values in groups for v in values.values()), default=0)
    if not most:
        return None
    left, top, width, bar = 190, 60 if len(names) > 1 else 40, 340, 14
    parts = [text(10, 22, title, kind="title")]
    if len(names) > 1:
        for i, name in enumerate(names):
            parts += [f'<rect x="{left + 110 * i}" y="34" width="12" height="12" fill="{COLORS[i]}"/>',
                      text(left + 110 * i + 18, 45, name)]
    y = top
    for group, values in groups:
        parts.append(text(left - 8, y + bar * len(names) / 2 + 4, group, "end"))
        for i, name in enumerate(names):
            if name in values:
                length = width * values[name] / most
                parts += [f'<rect x="{left}" y="{y}" width="{length:.1f}" height="{bar - 2}" fill="{COLORS[i]}"/>',
                          text(left + length + 5, y + bar - 4, f"{values[name]:.3g}{unit}")]
            y += bar
        y += 8
    return document(620, y + 10, parts)
