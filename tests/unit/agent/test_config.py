"""The command line: what it means, and what is refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from evertrain.agent.config import Config, parse, parse_devices

BASE = ("--coordinator", "127.0.0.1:7070,unix:/run/c.sock", "--node", "n1", "--state-dir", "/s")


def given(*options: str, environment: dict[str, str] | None = None) -> Config:
    return parse((*BASE, *options), environment=environment or {}, terminal=False)


def test_settings_are_what_the_options_say() -> None:
    config = given(
        "--slots", "3", "--devices", "0, 1", "--label", "rack=r1", "--label", "zone=a=b", "--address", "10.0.0.1"
    )
    assert config.coordinators == ("127.0.0.1:7070", "unix:/run/c.sock")
    assert (config.node, config.state_dir, config.slots, config.devices) == ("n1", Path("/s"), 3, ("0", "1"))
    assert (config.labels, config.address, config.tls) == ({"rack": "r1", "zone": "a=b"}, "10.0.0.1", None)
    assert config.log_format == "json"


def test_slots_are_the_devices_when_there_are_some() -> None:
    assert given("--devices", "0,1,2").slots == 3
    assert given("--devices", "none").slots >= 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--coordinator", "10.0.0.1:7070"), "no TLS is configured"),
        (("--coordinator", "localhost"), "expected HOST:PORT"),
        (("--coordinator", ","), "at least one address"),
        (("--node", "a b"), "--node 'a b'"),
        (("--devices", "0,0"), "named twice"),
        (("--slots", "0"), "at least 1"),
        (("--label", "rack"), "expected KEY=VALUE"),
        (("--tls-cert", "c.pem"), "give both"),
        (("--health-mount", "ckpt"), "must begin with /"),
        (("--health-config", "/none/health.toml"), "/none/health.toml: cannot be read"),
    ],
)
def test_wrong_option_is_refused_with_2_and_its_name(
    options: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        given(*options)
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_plain_text_to_another_machine_needs_insecure_or_tls() -> None:
    assert given("--coordinator", "10.0.0.1:7070", "--insecure").insecure
    tls = given("--coordinator", "10.0.0.1:7070", "--tls-ca", "ca.pem").tls
    assert tls is not None
    assert tls.ca == Path("ca.pem")


def test_auto_devices_are_those_the_agent_may_see_else_those_the_driver_shows(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert parse_devices("auto", environment={}, dev=tmp_path) == ("0", "2", "10")
    assert parse_devices("auto", environment={"CUDA_VISIBLE_DEVICES": "3,GPU-x"}, dev=tmp_path) == ("3", "GPU-x")
    assert parse_devices("auto", environment={"CUDA_VISIBLE_DEVICES": ""}, dev=tmp_path) == ()
    assert parse_devices("none", environment={"CUDA_VISIBLE_DEVICES": "1"}, dev=tmp_path) == ()
