"""The outermost shell of ctl: what it loads, and what it does about its own defects."""

from __future__ import annotations

import subprocess
import sys

import pytest

from evertrain.ctl import main
from evertrain.ctl.settings import Given, Output, settle
from evertrain.ctl.story import tell
from evertrain.ctl.words import instant
from support.operator import a_job

SLOW = ("grpc", "google.protobuf", "rich.table", "yaml", "evertrain.jobspec.load", "evertrain.api")


def test_help_loads_nothing_that_only_commands_need() -> None:
    program = (
        "import sys; import evertrain.ctl.main as m\n"
        "sys.argv = ['ctl', '--help']\n"
        "try: m.main()\n"
        "except SystemExit: pass\n"
        f"print([name for name in {SLOW!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.strip() == "[]"


def test_a_defect_of_ctl_is_told_on_one_screen_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(main, "app", broken)
    monkeypatch.delenv(main.DEBUG_ENV, raising=False)
    with pytest.raises(SystemExit) as caught:
        main.main()
    assert caught.value.code == 1
    err = capsys.readouterr().err
    assert "ctl itself failed: ZeroDivisionError: by zero" in err
    assert "Traceback" not in err
    monkeypatch.setenv(main.DEBUG_ENV, "1")
    with pytest.raises(ZeroDivisionError):
        main.main()


def test_options_after_a_command_win_over_those_before_it_and_over_the_environment() -> None:
    before = Given(coordinator="a:1", output=Output.JSON, insecure=True)
    after = Given(coordinator="b:2", request_timeout="2m")
    settings = settle(after.over(before), {"EVERTRAIN_COORDINATOR": "c:3", "XDG_STATE_HOME": "/x"})
    assert settings.coordinator == "b:2"
    assert settings.output is Output.JSON
    assert settings.insecure
    assert settings.request_timeout_s == 120
    assert str(settings.state_dir) == "/x/evertrain/local"
    assert settle(Given(), {"EVERTRAIN_COORDINATOR": "c:3"}).coordinator == "c:3"


def test_a_story_without_events_still_tells_the_present() -> None:
    now_s = 1_790_000_060.0
    text = "\n".join(line.prefix + line.text for line in tell(a_job(), [], now_s))
    assert text.startswith(f"Story of tiny-lm, told at {instant(now_s)}\n\nNo events are kept of it.")
    assert "Now     running for 1m: generation 2 trains on n1, n2, n3 and n4" in text
