def launch():
    import os
    import sys

    path, shown = PATHS
    names = sys.modules["__main__"].__dict__
    del names["launch"]
    names["__file__"] = path
    sys.argv[0] = shown
    if sys.path[:1] == [""]:
        del sys.path[0]
    sys.path.insert(0, os.path.dirname(path))
    code = None
    try:
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec", 0, True)
        exec(code, names)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as problem:
        trace = problem.__traceback__
        while trace is not None and trace.tb_frame.f_code is not code:
            trace = trace.tb_next
        sys.excepthook(type(problem), problem.with_traceback(trace), trace)
        sys.exit(1)


launch()
