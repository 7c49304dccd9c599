"""A workspace on a volume: each turn has a machine of its own, and finds what the last one left."""

from sandling import Sandbox, Volume

vol = Volume.get_or_create("workspace-of-ada", size_gb=0.25)
try:
    for turn in range(1, 4):
        with Sandbox(template="base", ttl_seconds=300, volumes=[vol.mount("/workspace")]) as sb:
            sb.run(f"echo turn {turn} >>/workspace/log", check=True)
            assert len(sb.filesystem.read_text("/workspace/log").splitlines()) == turn
    with Sandbox(template="base", ttl_seconds=300, volumes=[vol.mount("/workspace", read_only=True)]) as reader:
        assert reader.run("rm /workspace/log").exit_code != 0
        assert reader.run("tail -n 1 /workspace/log").stdout == "turn 3\n"
finally:
    vol.delete()
