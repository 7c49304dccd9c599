"""The parts without I/O."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Type

import pytest

from sandling import config, errors, retry
from sandling._sse import EventDecoder, ServerEvent
from sandling.agents import WHY
from sandling.desktops import Window, cdp_url_of, chord, pair_of, view_url_of, windows_of
from sandling.errors import SandlingError, from_answer
from sandling.exploring import BranchOutcome, candidates_of, pick, ranked
from sandling.options import DEFAULT_TEMPLATE, VolumeMount, create_body, exec_body, one_timeout
from sandling.toolkit import chosen
from sandling.tools import dialogues, patience


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_come_out_whole_however_the_bytes_are_cut(size: int) -> None:
    sent = (
        ': ping\n\nevent: stdout\ndata: {"chunk":"ä\u2028"}\n\ndata: one\r\ndata: two\r\n\r\nevent: lonely\n\n'.encode()
    )
    decoder = EventDecoder()
    events = [event for at in range(0, len(sent), size) for event in decoder.feed(sent[at : at + size])]
    assert events == [ServerEvent("stdout", '{"chunk":"ä\u2028"}'), ServerEvent("message", "one\ntwo")]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.BadRequestError),
        (401, errors.AuthError),
        (403, errors.ForbiddenError),
        (404, errors.NotFoundError),
        (409, errors.ConflictError),
        (413, errors.BadRequestError),
        (429, errors.LimitError),
        (500, errors.ServerError),
        (502, errors.ServerError),
        (503, errors.CapacityError),
        (507, errors.CapacityError),
    ],
)
def test_a_status_becomes_its_exception(status: int, kind: type) -> None:
    body = {"error": "no", "code": "because", "request_id": "r", "more": 1}
    error = from_answer(status, {"retry-after": "2.5"}, body)
    assert type(error) is kind
    assert (error.status, error.code, error.request_id, error.retry_after) == (status, "because", "r", 2.5)
    assert error.details == {"more": 1}
    assert str(error) == f"no (status {status}, code because, request r)"


def test_a_commands_deadline_keeps_its_output_and_other_gateway_errors_do_not_pass_for_one() -> None:
    late = from_answer(504, {}, {"error": "command timeout after 1s", "code": "command_timeout", "stdout": "a"})
    assert isinstance(late, errors.SandboxTimeout)
    assert (late.stdout, late.partial_stdout, late.stderr) == ("a", "a", "")
    assert type(from_answer(504, {}, "gateway timeout")) is errors.ServerError


def test_a_full_disk_is_no_lack_of_room_for_machines() -> None:
    full = from_answer(507, {}, {"error": "no space left on device", "code": "no_space"})
    assert type(full) is errors.NoSpaceError and not isinstance(full, errors.CapacityError)
    assert (full.status, full.code, full.message) == (507, "no_space", "no space left on device")


def test_an_answer_that_is_no_json_still_says_something() -> None:
    assert from_answer(502, {"x-request-id": "q"}, "<html>").message == "<html>"
    assert from_answer(502, {}, "").message == "the server answered 502"


def test_a_refusal_is_tried_again_only_if_waiting_helps() -> None:
    def wait(status: int, retry_after: object = None, elapsed: float = 0.0) -> object:
        error = SandlingError("no", status=status, retry_after=retry_after)  # type: ignore[arg-type]
        return retry.delay(error, 0, elapsed, 60.0)

    assert wait(503, 5.0) >= 5.0  # type: ignore[operator]
    assert wait(429, 1.0) >= 1.0  # type: ignore[operator]
    assert wait(507) >= 0.5  # type: ignore[operator]
    assert wait(503) is None and wait(429) is None and wait(500, 1.0) is None
    assert wait(503, 5.0, elapsed=56.0) is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after-ms": "50", "retry-after": "7"}, 0.05),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:30 GMT", "date": "Wed, 21 Oct 2015 07:28:00 GMT"}, 30),
        ({"retry-after": "Wednesday, 21-Oct-15 07:28:30 GMT", "date": "Wed, 21 Oct 2015 07:28:00 GMT"}, 30),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:30 GMT", "date": "Wed, 21 Oct 2015 07:29:00 GMT"}, 0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:30 GMT", "date": "now"}, 0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Wed, 99 Oct 2015 07:28:30 GMT"}, None),
    ],
)
def test_a_models_server_says_in_seconds_or_by_date_when_to_come_back(headers: object, seconds: object) -> None:
    error = Exception("busy")
    error.response = SimpleNamespace(headers=headers)  # type: ignore[attr-defined]
    assert patience.retry_after(error) == seconds


def test_estimates_are_those_of_the_command_line() -> None:
    assert dialogues.estimated({"type": "base64", "media_type": "image/png", "data": "x" * 9000}) == 1500
    assert dialogues.estimated("data:image/png;base64,xxx") == 1500
    assert dialogues.estimated(["four", None]) == 2


def test_what_is_not_given_is_not_sent() -> None:
    assert create_body("base", {"cpu": None, "ttl_seconds": 5, "cancel": object()}) == {
        "template": "base",
        "ttl_seconds": 5,
    }
    volumes = [VolumeMount("a", "/a"), {"name": "b", "readOnly": True}]
    assert create_body(DEFAULT_TEMPLATE, {"image": "python:3.12-slim"}) == {"image": "python:3.12-slim"}
    with pytest.raises(TypeError, match="a template or an image"):
        create_body("base", {"image": "python:3.12-slim"})
    assert create_body("base", {"volumes": volumes})["volumes"] == [
        {"name": "a", "read_only": False, "mount": "/a"},
        {"name": "b", "read_only": True},
    ]
    assert exec_body("ls", None, {"cwd": None}) == {"cmd": "ls"}
    assert exec_body(("a", "b"), 2, {"env": {"X": "1"}}) == {
        "args": ["a", "b"],
        "timeout_seconds": 2,
        "env": {"X": "1"},
    }


@pytest.mark.parametrize(
    ("call", "kind", "said"),
    [
        (
            lambda: create_body("base", {"volumes": ["nn:/data"]}),
            TypeError,
            r'volume.mount\("/data"\).*not \'nn:/data\'',
        ),
        (lambda: create_body("base", {"volumes": [{"mount": "/data"}]}), TypeError, "volumes takes"),
        (lambda: exec_body("cat", None, {"stdin": 7}), TypeError, "str, or bytes that are UTF-8, not int"),
        (lambda: exec_body("cat", None, {"stdin": b"\xff"}), ValueError, "stdin takes text"),
        (lambda: exec_body("ls", "1", {}), TypeError, "a number of seconds, not '1'"),  # type: ignore[arg-type]
        (lambda: one_timeout(1, 2), TypeError, "timeout and timeout_seconds"),
        (lambda: chosen(["run_cod"]), ValueError, "no tool 'run_cod'; there are run_code, run_command"),
    ],
)
def test_a_mistake_is_told_in_words_that_mend_it(call: Any, kind: Type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        call()


def test_what_means_the_same_is_taken() -> None:
    assert exec_body("cat", None, {"stdin": "ü".encode()}) == {"cmd": "cat", "stdin": "ü"}
    assert [one_timeout(1, None), one_timeout(None, 1), one_timeout(1, 1.0), one_timeout(None, None)] == [1, 1, 1, None]


def outcome(label: str, score: float, ok: bool = True, duration_ms: int = 1) -> BranchOutcome[str]:
    return BranchOutcome(label, label, label, ok=ok, score=score, duration_ms=duration_ms)


def test_the_winner_is_the_best_that_succeeded_and_of_equals_the_faster() -> None:
    outcomes = [outcome("slow", 2, duration_ms=9), outcome("fast", 2), outcome("broken", 5, ok=False)]
    assert [item.label for item in ranked(outcomes, "max")] == ["broken", "fast", "slow"]
    assert pick(ranked(outcomes, "max"), "max", True).label == "fast"  # type: ignore[union-attr]
    assert pick(ranked(outcomes, "max"), "max", False).label == "broken"  # type: ignore[union-attr]
    assert pick(ranked(outcomes, "min"), lambda viable: viable[-1], True).label == "slow"  # type: ignore[union-attr]
    assert pick([outcome("x", 1, ok=False)], "max", True) is None


def test_candidates_are_checked_before_anything_is_forked() -> None:
    for bad in ([], ["x"] * 17):
        with pytest.raises(errors.ExploreError):
            candidates_of(bad)


def test_the_home_token_never_leaves_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("SANDLING_HOME", str(tmp_path))
    monkeypatch.delenv("SANDLING_TOKEN", raising=False)
    (config.home()).joinpath("token").write_text("sdl_secret\n")
    near = config.configured("http://127.0.0.1:8080/v1/", None)
    assert near == ("http://127.0.0.1:8080", "sdl_secret")
    for far in ("https://api.example.org", "http://127.0.0.1.example.org", "http://localhost@example.org"):
        with pytest.raises(errors.ConfigError):
            config.configured(far, None)


def test_end_reasons_have_the_wording_of_the_command_line() -> None:
    shared = Path(__file__).resolve().parents[3] / "conformance" / "agent" / "end_reasons.json"
    assert json.loads(shared.read_text(encoding="utf-8")) == WHY


def test_windows_are_read_from_wmctrl_without_the_panel() -> None:
    listing = (
        "0x00a00003 -1 0    0    1024 27   vm xfce4-panel\n"
        "0x01400008  0 334  342  366  142  vm notes  (draft) - Mousepad\n"
        "0x01600008  0 -10  0    1    2    vm \n"
    )
    assert windows_of(listing) == [
        Window("0x01400008", "notes  (draft) - Mousepad", 334, 342, 366, 142),
        Window("0x01600008", "", -10, 0, 1, 2),
    ]
    assert windows_of("") == []


def test_keys_have_common_names_and_those_of_x() -> None:
    assert chord(("ctrl", "shift", "t")) == "ctrl+shift+t"
    assert chord(("enter",)) == "Return"
    assert chord(("KP_Enter",)) == "KP_Enter"


def test_a_tool_that_prints_no_numbers_is_an_error() -> None:
    assert pair_of(r"x:(\d+) y:(\d+)", "x:12 y:7 screen:0 window:55") == (12, 7)
    with pytest.raises(ValueError, match="no position"):
        pair_of(r"(\d+) (\d+)", "")


def test_the_view_of_a_desktop_keeps_the_token_of_its_preview() -> None:
    assert (
        view_url_of("http://h.localhost:1/?t=x", False)
        == "http://h.localhost:1/vnc.html?t=x&autoconnect=true&resize=scale"
    )
    assert view_url_of("http://h/p", True) == "http://h/p/vnc.html?autoconnect=true&resize=scale&view_only=true"


def test_the_url_of_a_browser_is_below_that_of_its_preview() -> None:
    version = '{"webSocketDebuggerUrl": "ws://localhost:9222/devtools/browser/b"}'
    assert cdp_url_of("http://127.0.0.1:1/v1/p/t.s/", version) == "ws://127.0.0.1:1/v1/p/t.s/devtools/browser/b"
    assert cdp_url_of("https://api.example.org/v1/p/t/", version) == "wss://api.example.org/v1/p/t/devtools/browser/b"
