"""Tables and the plot of `bench/scale/run.py`.

It does not measure, or need a package.
"""

import math

COLOURS = ["#000000", "#0072b2", "#56b4e9", "#d55e00", "#e69f00", "#009e73", "#cc79a7"]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 1000, 420, 70, 20, 40, 120


def table(rows):
    """The rows of one size, for a terminal."""
    first = rows[0]
    lines = [f"{first['where']}, {first['size']} ranks, load {first['load']:.1f}"]
    for row in rows:
        lines.append(f"  {row['variant']:<13}{row['candidate']:<42}{row['median_us']:>12.1f} µs  {ratio(row):>6} of C  {row['cpu_us']:>10.0f} µs CPU, root {row['root_cpu_us']:.0f}")
    return "\n".join(lines)


def ratio(row):
    """Beside the round of direct calls."""
    return "—" if row["ratio_to_c"] is None else f"{row['ratio_to_c']:.2f}"


def markdown(found, skipped, machine):
    """All sizes, candidates side by side."""
    text = [f"Rounds on {machine}. µs, medians; in brackets the ratio to gatherv + bcast of direct MPI calls, paired by blocks."]
    for where in ["one host", "hosts"]:
        for variant in ["back to back", "apart"]:
            rows = [row for row in found if (row["where"], row["variant"]) == (where, variant)]
            if not rows:
                continue
            names = list(dict.fromkeys(row["candidate"] for row in rows))
            text += ["", f"{where}, {'rounds back to back' if variant == 'back to back' else 'ranks arrive 1 to 5 ms apart'}:", ""]
            text += ["| ranks | load | " + " | ".join(names) + " |", "|---" * (len(names) + 2) + "|"]
            for size in sorted({row["size"] for row in rows}):
                of_size = {row["candidate"]: row for row in rows if row["size"] == size}
                cells = [f"{row['median_us']:.0f} ({ratio(row)})" if (row := of_size.get(name)) else "—" for name in names]
                load = next(iter(of_size.values()))["load"]
                text.append(f"| {size} | {load:.0f} | " + " | ".join(cells) + " |")
    text += [f"\nLeft out: {reason}" for reason in skipped]
    return "\n".join(text) + "\n"


def plot(found, candidates):
    """Round time over ranks, both logarithmic; one host at the left, namespace hosts at the right."""
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    rows = [row for row in found if row["variant"] == "back to back"]
    if rows:
        low, high = math.floor(math.log10(min(row["median_us"] for row in rows))), math.ceil(math.log10(max(row["median_us"] for row in rows)))
        half = (WIDTH - LEFT - RIGHT) / 2
        for index, where in enumerate(["one host", "hosts"]):
            parts += panel([row for row in rows if row["where"] == where], candidates, (low, max(high, low + 1)), LEFT + index * half, half - 30, where)
        for index, name in enumerate(candidates):
            x, y = LEFT + (index % 3) * 310, HEIGHT - 60 + 18 * (index // 3)
            parts.append(f'<line x1="{x}" y1="{y - 4}" x2="{x + 20}" y2="{y - 4}" stroke="{COLOURS[index]}" stroke-width="2"/><text x="{x + 26}" y="{y}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def panel(rows, candidates, decades, left, width, title):
    """One diagram."""
    low, high = decades
    bottom = HEIGHT - BOTTOM
    sizes = sorted({row["size"] for row in rows}) or [2]
    least, most = math.log2(sizes[0]), max(math.log2(sizes[-1]), math.log2(sizes[0]) + 1)
    x = lambda size: left + (math.log2(size) - least) / (most - least) * (width - 20) + 10
    y = lambda us: bottom - (math.log10(us) - low) / (high - low) * (bottom - TOP)
    parts = [f'<text x="{left}" y="{TOP - 14}">{title}: µs of a round over ranks</text>']
    for decade in range(low, high + 1):
        at = y(10.0**decade)
        parts.append(f'<line x1="{left}" y1="{at:.1f}" x2="{left + width}" y2="{at:.1f}" stroke="#ddd"/><text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end">{10**decade:g}</text>')
    parts += [f'<text x="{x(size):.1f}" y="{bottom + 16}" text-anchor="middle">{size}</text>' for size in sizes]
    for index, name in enumerate(candidates):
        points = sorted((row["size"], row["median_us"]) for row in rows if row["candidate"] == name)
        parts.append(f'<polyline fill="none" stroke="{COLOURS[index]}" stroke-width="2" points="' + " ".join(f"{x(size):.1f},{y(us):.1f}" for size, us in points) + '"/>')
        parts += [f'<circle cx="{x(size):.1f}" cy="{y(us):.1f}" r="3" fill="{COLOURS[index]}"/>' for size, us in points]
    return parts
