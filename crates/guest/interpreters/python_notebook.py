"""The source of a notebook's cell as Python: dedented, with its shell lines, magics and questions as calls."""

import re

# The blank lines at the beginning, then the first line's indentation.
FIRST_INDENT = re.compile(r"(?:[ \t\f]*\r?\n)*([ \t]+)(?=\S)")
CELL_MAGIC = re.compile(r"\s*%%(\w+)[ \t]*([^\r\n]*)\r?\n?")
MAGIC = r"%(?P<magic>[A-Za-z_]\w*)(?=\s|$)[ \t]*(?P<arguments>.*)"
SHELL = r"!(?P<quiet>!?)(?P<command>.*)"
LINE = re.compile(rf"^(?P<indent>[ \t]*)(?:(?P<target>[\w., *]+?)[ \t]*=[ \t]*)?(?:{SHELL}|{MAGIC})$")
QUESTION = re.compile(r"^(?P<indent>[ \t]*)(?:\?{1,2}[ \t]*(?P<after>[\w.]+)|(?P<before>[\w.]+)[ \t]*\?{1,2})[ \t]*$")


def dedent(source):
    """The source without the indentation of its first line, as in notebooks."""
    found = FIRST_INDENT.match(source)
    if found is None:
        return source
    return re.sub(f"^{re.escape(found[1])}", "", source, flags=re.MULTILINE)


def to_python(source, compile_python):
    """The source as Python, and what `compile_python` made of it. Valid Python is not changed."""
    source = dedent(source)
    found = CELL_MAGIC.match(source)
    if found is not None:
        source = f"get_ipython().run_cell_magic({found[1]!r}, {found[2].strip()!r}, {source[found.end() :]!r})"
    lines = None
    while True:
        try:
            return source, compile_python(source)
        except SyntaxError as problem:
            lines = source.split("\n") if lines is None else lines
            # Only the line that Python does not understand: the others may be parts of strings.
            if not replace(lines, (problem.lineno or 0) - 1) and not replace_all(lines):
                raise
            source = "\n".join(lines)


def replace(lines, number):
    """Replaces one line if it is no Python but a notebook's; whether it was."""
    if not 0 <= number < len(lines):
        return False
    # A line that ends with a backslash continues.
    last = number
    while lines[last].endswith("\\") and last + 1 < len(lines):
        last += 1
    text = "".join(line[:-1] for line in lines[number:last]) + lines[last].rstrip("\r")
    call = as_call(text)
    if call is None:
        return False
    lines[number : last + 1] = [call, *[""] * (last - number)]
    return True


def replace_all(lines):
    """Python can report another line than the one it does not understand, such as the opening of a bracket."""
    return any([replace(lines, number) for number in range(len(lines))])


def as_call(line):
    """A notebook's line as a call; None if it is none."""
    found = LINE.match(line)
    if found is None:
        found = QUESTION.match(line)
        name = found and (found["after"] or found["before"])
        return name and f"{found['indent']}get_ipython().run_line_magic('pinfo', {name!r})"
    target, name = found["target"], found["magic"]
    if name is not None:
        call = f"get_ipython().run_line_magic({name!r}, {found['arguments'].strip()!r})"
    elif target or found["quiet"]:
        call = f"get_ipython().getoutput({found['command']!r})"
    else:
        call = f"get_ipython().system({found['command']!r})"
    return found["indent"] + (f"{target} = {call}" if target else call)
