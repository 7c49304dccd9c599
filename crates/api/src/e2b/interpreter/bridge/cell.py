import sys

if "sandling_bridge" not in sys.modules:
    sys.modules["sandling_bridge"] = type(sys)("sandling_bridge")
    exec(compile(bridge, "bridge.py", "exec"), sys.modules["sandling_bridge"].__dict__)  # noqa: F821, S102
sys.modules["sandling_bridge"].run(**cell)  # noqa: F821
