"""A figure as data: its points, bars, slices and boxes, beside its picture.

It reads only matplotlib's own objects, so figures that other libraries draw with matplotlib work, too. A figure that
it does not understand becomes a chart of the type `unknown`.
"""

import math
import re
import sys

UNIT = re.compile(r"\(([^()]+)\)\s*$|\[([^\[\]]+)\]\s*$")
MOST_POINTS = 20_000
MOST_CELLS = 100_000


def chart(figure):
    """The chart of a figure; several axes make a superchart. None if the figure is empty."""
    charts = [of_axes(axes) for axes in figure.axes]
    if len(charts) < 2:
        return charts[0] if charts else None
    title = figure._suptitle.get_text() if getattr(figure, "_suptitle", None) else None
    return {"type": "superchart", "title": title, "elements": charts}


def of_axes(axes):
    for read in (pie, box_and_whisker, bar, scatter, line):
        found = read(axes)
        if found is not None:
            return found
    return {"type": "unknown", "title": title_of(axes), "elements": []}


def pie(axes):
    wedges = [patch for patch in axes.patches if type(patch).__name__ == "Wedge"]
    if not wedges:
        return None
    texts = [text.get_text() for text in axes.texts]
    elements = []
    for number, wedge in enumerate(wedges):
        label = wedge.get_label()
        if label.startswith("_"):
            label = texts[number] if number < len(texts) else ""
        angle = round(wedge.theta2 - wedge.theta1, 4)
        elements.append({"label": label, "angle": number_of(angle), "radius": number_of(wedge.r)})
    return {"type": "pie", "title": title_of(axes), "elements": elements}


def bar(axes):
    """Bars are grouped by the call that drew them, whose label is the group."""
    groups = [found for found in axes.containers if type(found).__name__ == "BarContainer"]
    if not groups:
        return None
    across = getattr(groups[0], "orientation", "vertical") == "horizontal"
    names = tick_names(axes.yaxis if across else axes.xaxis)
    elements = []
    for group in groups:
        label = group.get_label()
        for patch in group.patches:
            low, high = patch.get_bbox().get_points().tolist()
            place = (low[across] + high[across]) / 2
            value = patch.get_width() if across else patch.get_height()
            name = names.get(nearest(names, place), plain(place))
            elements.append({"label": str(name), "group": unless_hidden(label), "value": number_of(value)})
    return {**labelled("bar", axes), "elements": elements[:MOST_POINTS]}


def scatter(axes):
    clouds = [found for found in axes.collections if type(found).__name__ == "PathCollection"]
    if not clouds:
        return None
    elements = [points_of(axes, cloud.get_label(), cloud.get_offsets().tolist()) for cloud in clouds]
    return {**labelled("scatter", axes), **scales(axes), "elements": elements}


def line(axes):
    lines = [found for found in axes.lines if found.get_linestyle() != "None" or found.get_marker() != "None"]
    if not lines:
        return None
    elements = []
    for found in lines:
        xs, ys = found.get_data(orig=False)
        elements.append(points_of(axes, found.get_label(), list(zip(xs.tolist(), ys.tolist()))))
    return {**labelled("line", axes), **scales(axes), "elements": elements}


def box_and_whisker(axes):
    """Boxes, drawn as closed lines or as patches; whiskers, caps and medians are lines around them. What is drawn again at
    the same place, for example with a filling, counts once."""
    lines = distinct(found.get_xydata().tolist() for found in axes.lines)
    patches = [patch for patch in axes.patches if type(patch).__name__ == "PathPatch"]
    shapes = lines + [patch.get_path().vertices.tolist() for patch in patches]
    boxes = distinct(extent(points) for points in shapes if is_box(points))
    if not boxes:
        return None
    names = tick_names(axes.xaxis)
    rest = [points for points in lines if not is_box(points)]
    elements = [of_box(box, rest, names) for box in boxes]
    return {**labelled("box_and_whisker", axes), "elements": elements}


def is_box(points):
    corners = {tuple(point) for point in points}
    xs, ys = {point[0] for point in points}, {point[1] for point in points}
    return len(points) >= 5 and len(corners) == 4 and len(xs) == 2 and len(ys) == 2


def extent(points):
    xs, ys = zip(*points)
    return min(xs), max(xs), min(ys), max(ys)


def distinct(found):
    """Without what equals something before it."""
    return list({repr(one): one for one in found}.values())


def of_box(box, lines, names):
    left, right, low, high = box
    middle = (left + right) / 2
    near = [found for found in lines if found and all(left <= x <= right for x, _ in found)]
    whiskers = [found for found in near if len(found) == 2 and found[0][0] == found[1][0]]
    medians = [found for found in near if len(found) == 2 and found[0][1] == found[1][1] and low <= found[0][1] <= high]
    # Caps are horizontal like a median, but lie at the ends of the whiskers.
    medians = [found for found in medians if abs(found[0][0] - found[1][0]) > (right - left) * 0.9] or medians
    ends = [y for found in whiskers for _, y in found] or [low, high]
    outliers = [y for found in near for x, y in found if abs(x - middle) < 1e-9 and not min(ends) <= y <= max(ends)]
    return {
        "label": str(names.get(nearest(names, middle), plain(middle))),
        "min": number_of(min(ends)),
        "first_quartile": number_of(low),
        "median": number_of(medians[0][0][1]) if medians else None,
        "third_quartile": number_of(high),
        "max": number_of(max(ends)),
        "outliers": [number_of(y) for y in outliers],
    }


def points_of(axes, label, points):
    read_x, read_y = reader(axes.xaxis), reader(axes.yaxis)
    points = [[read_x(x), read_y(y)] for x, y in points[:MOST_POINTS]]
    return {"label": unless_hidden(label), "points": points}


def labelled(kind, axes):
    x_label, y_label = axes.get_xlabel() or None, axes.get_ylabel() or None
    return {
        "type": kind,
        "title": title_of(axes),
        "x_label": x_label,
        "y_label": y_label,
        "x_unit": unit_of(x_label),
        "y_unit": unit_of(y_label),
    }


def scales(axes):
    found = {}
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        read = reader(axis)
        found[f"{name}_ticks"] = [read(tick) for tick in axis.get_ticklocs()]
        found[f"{name}_tick_labels"] = [label.get_text() for label in axis.get_ticklabels()]
        found[f"{name}_scale"] = scale_of(axis)
    return found


def scale_of(axis):
    kind = type(axis.converter).__name__
    if "Date" in kind or "Time" in kind:
        return "datetime"
    return "categorical" if kind == "StrCategoryConverter" else axis.get_scale()


def reader(axis):
    """A function from a number on this axis to the value that the user gave: a time, a category or a number."""
    scale = scale_of(axis)
    if scale == "datetime":
        dates = sys.modules["matplotlib.dates"]
        return lambda value: dates.num2date(value).replace(tzinfo=None).isoformat() if is_finite(value) else None
    if scale == "categorical":
        names = categories(axis)
        return lambda value: names.get(float(value), number_of(value))
    return number_of


def categories(axis):
    mapping = getattr(axis.units, "_mapping", {})
    return {float(place): name for name, place in mapping.items()}


def tick_names(axis):
    """Maps a position on an axis to its tick label."""
    names = categories(axis)
    if names:
        return names
    labels = [label.get_text() for label in axis.get_ticklabels()]
    return {float(place): text for place, text in zip(axis.get_ticklocs(), labels) if text}


def nearest(names, place):
    """The labelled position of a bar or box; grouped bars stand beside it."""
    best = min(names, key=lambda known: abs(known - place), default=None)
    return best if best is not None and abs(best - place) < 0.5 else None


def title_of(axes):
    return axes.get_title() or None


def unit_of(label):
    found = UNIT.search(label or "")
    return found and (found[1] or found[2])


def unless_hidden(label):
    return "" if str(label).startswith("_") else str(label)


def is_finite(value):
    return isinstance(value, (int, float)) and math.isfinite(value)


def number_of(value):
    """The number, or None if JSON cannot represent it."""
    value = value.item() if hasattr(value, "item") else value
    return value if is_finite(value) else None


def plain(value):
    """The number of a label: 1 and not 1.0."""
    return int(value) if float(value).is_integer() else float(value)


def columns(value):
    """The columns of a pandas table; None if it is no table or too large."""
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(value, pandas.DataFrame) or value.size > MOST_CELLS:
        return None
    return {str(name): [cell_of(cell) for cell in value.iloc[:, at].tolist()] for at, name in enumerate(value.columns)}


def cell_of(cell):
    if cell is None or isinstance(cell, (str, bool)):
        return cell
    if isinstance(cell, (int, float)):
        return cell if math.isfinite(cell) else None
    return cell.isoformat() if hasattr(cell, "isoformat") else str(cell)
