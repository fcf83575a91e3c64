"""TLS, certificates of clients, and certificates that change, with certificates made by openssl."""

from __future__ import annotations

import logging
import shutil
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

import proton
import pytest
from proton import ConnectionException, SSLDomain
from proton.utils import BlockingConnection
from pydantic import ValidationError

from journal.amqp.security_settings import SecuritySettings
from journal.broker.security.tls import ServerTls, common_name
from journal.errors import ConfigError
from tests.support.certificates import Authority, SignedPair
from tests.unit.broker.conftest import TIMEOUT_S, Broker
from tests.unit.broker.security.conftest import PASSWORD, Serve, UsersOfTest


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def pair(authority: Authority) -> SignedPair:
    return authority.signed("/CN=localhost")


def tls(pair: SignedPair, **more: Any) -> dict[str, Any]:
    return {"certificate": pair.certificate, "key": pair.key, **more}


def url(broker: Broker) -> str:
    return broker.url.replace("amqp://127.0.0.1", "amqps://localhost")


def domain(authority: Authority, pair: SignedPair | None = None) -> SSLDomain:
    made = SSLDomain(SSLDomain.MODE_CLIENT)
    made.set_trusted_ca_db(str(authority.certificate))
    made.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    if pair is not None:
        made.set_credentials(str(pair.certificate), str(pair.key), None)
    return made


def connect(broker: Broker, domain: SSLDomain, mechanism: str, **user: str) -> BlockingConnection:
    return BlockingConnection(url(broker), ssl_domain=domain, timeout=TIMEOUT_S, allowed_mechs=mechanism, **user)


def served_subject(broker: Broker, authority: Authority) -> str:
    """The common name of the certificate that a new connection is shown."""
    host, port = broker.url.removeprefix("amqp://").split(":")
    context = ssl.create_default_context(cafile=str(authority.certificate))
    with (
        socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as wrapped,
    ):
        return common_name(wrapped.getpeercert())


def test_a_password_goes_over_tls(serve: Serve, authority: Authority, pair: SignedPair) -> None:
    broker = serve(**tls(pair))
    client = connect(broker, domain(authority), "PLAIN", user="alice", password=PASSWORD)
    client.create_sender("orders").send(proton.Message(body=bytes(100_000)))
    assert client.create_receiver("orders").receive(TIMEOUT_S).body == bytes(100_000)
    client.close()
    with pytest.raises(ConnectionException):
        connect(broker, domain(authority), "PLAIN", user="alice", password="wrong")


def test_a_certificate_names_the_user(serve: Serve, authority: Authority, pair: SignedPair, users: UsersOfTest) -> None:
    """A user without a password, and one whose name nobody has."""
    users.add("carol", password=False)
    broker = serve(**tls(pair, clients_ca=authority.certificate))
    client = connect(broker, domain(authority, authority.signed("/O=us/CN=carol")), "EXTERNAL")
    client.create_sender("orders").send(proton.Message(body=1))
    client.close()
    with pytest.raises(ConnectionException):
        connect(broker, domain(authority, authority.signed("/CN=nobody")), "EXTERNAL")
    with pytest.raises(ConnectionException):
        connect(broker, domain(authority, authority.signed("/CN=carol/CN=alice")), "EXTERNAL")
    connect(broker, domain(authority), "PLAIN", user="alice", password=PASSWORD).close()


def test_where_certificates_are_needed_there_is_no_other_way(
    serve: Serve, authority: Authority, pair: SignedPair, tmp_path: Path
) -> None:
    broker = serve(**tls(pair, clients_ca=authority.certificate, clients_need_certificates=True))
    stranger = Authority(tmp_path, "stranger").signed("/CN=alice")
    for credentials in (None, stranger):
        with pytest.raises(ConnectionException):
            connect(broker, domain(authority, credentials), "PLAIN", user="alice", password=PASSWORD)
    mine = authority.signed("/CN=alice")
    connect(broker, domain(authority, mine), "PLAIN", user="alice", password=PASSWORD).close()


def test_a_client_without_tls_is_left(serve: Serve, pair: SignedPair) -> None:
    broker = serve(**tls(pair))
    with pytest.raises(ConnectionException):
        broker.connect()


def test_older_versions_of_tls_are_refused(pair: SignedPair) -> None:
    context = ServerTls(SecuritySettings(**tls(pair))).context()
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_a_client_that_does_not_begin_with_tls_is_bounded_in_number_and_time(serve: Serve, pair: SignedPair) -> None:
    broker = serve(amqp={"handshake_ms": 300, "connections_max": 1}, **tls(pair))
    host, port = broker.url.removeprefix("amqp://").split(":")
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as silent:
        with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as other:
            assert other.recv(1) == b""
        assert silent.recv(1) == b""


def test_a_new_certificate_is_used_without_a_restart(
    serve: Serve, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its files are replaced one after the other; until they fit each other, the old ones are used."""
    files = SignedPair(tmp_path / "server.pem", tmp_path / "server.key")
    old, new = authority.signed("/CN=old"), authority.signed("/CN=new")
    for source, to in zip(old, files, strict=True):
        shutil.copy(source, to)
    broker = serve(**tls(files))
    assert served_subject(broker, authority) == "old"
    shutil.copy(new.certificate, files.certificate)
    assert served_subject(broker, authority) == "old"
    said = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert len(said) == 1
    assert "the certificates before stay in use" in said[0]
    shutil.copy(new.key, files.key)
    assert served_subject(broker, authority) == "new"
    files.certificate.unlink()
    assert served_subject(broker, authority) == "new"


def test_a_client_of_an_authority_that_is_no_longer_trusted_is_refused(
    serve: Serve, authority: Authority, pair: SignedPair, tmp_path: Path
) -> None:
    trusted = tmp_path / "clients.pem"
    shutil.copy(authority.certificate, trusted)
    broker = serve(**tls(pair, clients_ca=trusted))
    mine = domain(authority, authority.signed("/CN=alice"))
    connect(broker, mine, "EXTERNAL").close()
    shutil.copy(Authority(tmp_path, "stranger").certificate, trusted)
    with pytest.raises(ConnectionException):
        connect(broker, mine, "EXTERNAL")


@pytest.mark.parametrize("broken", ["certificate", "key", "clients_ca"])
def test_files_that_are_missing_or_damaged_are_named(
    pair: SignedPair, authority: Authority, tmp_path: Path, broken: str
) -> None:
    given = tls(pair, clients_ca=authority.certificate) | {broken: tmp_path / "none.pem"}
    with pytest.raises(ConfigError, match=r"none\.pem cannot be read for TLS"):
        ServerTls(SecuritySettings(**given))
    (tmp_path / "none.pem").write_text("nothing")
    with pytest.raises(ConfigError, match="cannot be used for TLS"):
        ServerTls(SecuritySettings(**given))


def test_an_encrypted_key_is_refused_and_nobody_is_asked(pair: SignedPair, tmp_path: Path) -> None:

    key = tmp_path / "encrypted.key"
    subprocess.run(
        ["openssl", "ec", "-in", str(pair.key), "-out", str(key), "-aes128", "-passout", "pass:secret"], check=True
    )
    with pytest.raises(ConfigError, match="cannot be used for TLS"):
        ServerTls(SecuritySettings(certificate=pair.certificate, key=key))


@pytest.mark.parametrize(
    "given", [{"key": "k"}, {"clients_ca": "c"}, {"certificate": "c", "clients_need_certificates": True}]
)
def test_settings_that_contradict_each_other_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"set certificate too|set clients_ca too"):
        SecuritySettings(**given)
