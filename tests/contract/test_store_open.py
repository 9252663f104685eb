"""Which urls name a store, and what is said of those that don't."""

from __future__ import annotations

from pathlib import Path

import pytest

from evertrain.controlplane.store.open import BadStoreUrl, StoreOptions, open_store


@pytest.mark.parametrize(
    ("url", "described"),
    [
        ("memory:", "memory store"),
        ("embedded:/var/lib/evertrain/store.db", "embedded store /var/lib/evertrain/store.db"),
        ("etcd://h1:2379/prod", "etcd at h1:2379, keys /evertrain/prod/"),
        ("etcd://h1:2379,10.0.0.2:2379,[::1]:2379/a.b-c_1", "etcd at h1:2379,10.0.0.2:2379,[::1]:2379"),
        ("etcds://h1:2379/prod", "etcd at h1:2379"),
    ],
)
async def test_a_good_url_names_a_store_that_says_where_it_is(url: str, described: str) -> None:
    store = open_store(url)
    assert described in store.describe()
    await store.close()


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("", "no store of the kind ''"),
        ("memory", "no store of the kind 'memory'"),
        ("memory:x", "no store of the kind 'memory'"),
        ("sqlite:/x.db", "no store of the kind 'sqlite'"),
        ("embedded:store.db", "'store.db'"),
        ("embedded:", "absolute"),
        ("embedded:/folder/", "'/folder/'"),
        ("etcd://", "endpoint ''"),
        ("etcd:h1:2379/prod", "etcd:// or etcds://"),
        ("etcd://h1/prod", "endpoint 'h1'"),
        ("etcd://h1:2379,/prod", "endpoint ''"),
        ("etcd://h1:0/prod", "endpoint 'h1:0'"),
        ("etcd://h1:99999/prod", "endpoint 'h1:99999'"),
        ("etcd://h1:2379", "cluster ''"),
        ("etcd://h1:2379/a/b", "cluster 'a/b'"),
    ],
)
def test_a_bad_url_is_refused_with_the_valid_forms(url: str, named: str) -> None:
    with pytest.raises(BadStoreUrl) as caught:
        open_store(url)
    assert named in str(caught.value)
    for form in ("memory:", "embedded:/", "etcd://HOST:PORT", "etcds://HOST:PORT"):
        assert form in str(caught.value)


def test_a_password_in_the_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(BadStoreUrl, match="password don't belong in the url") as caught:
        open_store("etcd://root:hunter2@h1:2379/prod")
    assert "hunter2" not in str(caught.value)


def test_options_that_lack_their_other_half_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadStoreUrl, match="needs a password file"):
        open_store("etcd://h1:2379/prod", options=StoreOptions(etcd_user="evertrain"))
    with pytest.raises(BadStoreUrl, match="needs its key"):
        open_store("etcds://h1:2379/prod", options=StoreOptions(tls_cert_file=tmp_path / "cert.pem"))
    with pytest.raises(BadStoreUrl, match=r"ca.pem: No such file"):
        open_store("etcds://h1:2379/prod", options=StoreOptions(tls_ca_file=tmp_path / "ca.pem"))
