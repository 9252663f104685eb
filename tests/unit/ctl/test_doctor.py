"""What ctl doctor says of certificates, folders, Pythons and clocks."""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from evertrain.ctl import doctor
from evertrain.ctl.certificate import NoCertificate, Validity, validity
from evertrain.ctl.doctor import Verdict

BEGINS = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
DAY_S = 86400.0


def certificate(ends: dt.datetime) -> str:
    """A self-signed certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x" * 60)])
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(BEGINS)
        .not_valid_after(ends)
        .sign(key, hashes.SHA256())
    )
    return built.public_bytes(serialization.Encoding.PEM).decode()


@pytest.mark.parametrize("ends", [BEGINS + dt.timedelta(days=90), dt.datetime(2051, 1, 1, tzinfo=dt.UTC)])
def test_the_validity_of_a_certificate_is_read_also_beyond_2050(ends: dt.datetime) -> None:
    text = "a remark before\n" + certificate(ends)
    assert validity(text) == Validity(begins_s=BEGINS.timestamp(), ends_s=ends.timestamp())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-----BEGIN CERTIFICATE-----",
        "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----",
        "-----BEGIN CERTIFICATE-----\nMIIFFFFF\n-----END CERTIFICATE-----",
        "-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----",
        certificate(BEGINS + dt.timedelta(days=1))[:200] + "\n-----END CERTIFICATE-----",
    ],
)
def test_what_is_no_certificate_is_told(text: str) -> None:
    with pytest.raises(NoCertificate):
        validity(text)


@pytest.mark.parametrize(
    ("now_after_begin_s", "verdict", "part"),
    [
        (10 * DAY_S, Verdict.OK, "is valid until 2026-04-02 03:04:05Z"),
        (80 * DAY_S, Verdict.WARN, "10d from now"),
        (91 * DAY_S, Verdict.FAIL, "expired at 2026-04-02 03:04:05Z, 1d ago"),
        (-60.0, Verdict.FAIL, "is valid only from 2026-01-02"),
    ],
)
def test_certificates_are_judged_by_their_time(
    tmp_path: Path, now_after_begin_s: float, verdict: Verdict, part: str
) -> None:
    file = tmp_path / "cert.pem"
    file.write_text(certificate(BEGINS + dt.timedelta(days=90)))
    (found,) = doctor.certificates((("--tls-cert", file),), BEGINS.timestamp() + now_after_begin_s)
    assert found.verdict is verdict
    assert part in found.text
    assert bool(found.remedy) is (verdict is not Verdict.OK)


def test_a_certificate_that_is_missing_fails(tmp_path: Path) -> None:
    (found,) = doctor.certificates((("--tls-ca", tmp_path / "none.pem"),), 0.0)
    assert found.verdict is Verdict.FAIL
    assert "No such file" in found.text


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("2.13.0+cpu True", Verdict.OK),
        ("2.3.1 True", Verdict.FAIL),
        ("2.13.0 False", Verdict.FAIL),
        ("x True", Verdict.FAIL),
    ],
)
def test_torch_is_judged_by_its_version(tmp_path: Path, answer: str, verdict: Verdict) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho {answer}\n")
    python.chmod(0o700)
    assert doctor.torch(str(python)).verdict is verdict


def test_a_python_that_does_not_exist_fails() -> None:
    assert doctor.torch("/nonexistent/python").verdict is Verdict.FAIL


def test_this_machine_can_run_the_tests(tmp_path: Path) -> None:
    assert doctor.python().verdict is Verdict.OK
    assert sys.executable in doctor.python().text
    assert doctor.ports().verdict is not Verdict.FAIL
    assert doctor.limits().verdict is not Verdict.FAIL
    assert doctor.shared_memory().verdict is not Verdict.FAIL
    state, _temp = doctor.folders(tmp_path / "not" / "yet" / "there")
    assert state.verdict is not Verdict.FAIL


def test_a_clock_that_was_never_set_fails() -> None:
    assert doctor.clock(86400.0).verdict is Verdict.FAIL
    assert doctor.clock(1.9e9).verdict is not Verdict.FAIL


def test_an_etcd_that_is_away_fails() -> None:
    found = doctor.etcd("127.0.0.1:1", ca=None, cert=None, key=None)
    assert found.verdict is Verdict.FAIL
    assert "Connection refused" in found.text
