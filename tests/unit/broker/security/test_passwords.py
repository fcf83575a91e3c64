"""Keys of passwords, and the server's side of SCRAM, with the example of RFC 7677."""

from __future__ import annotations

import base64

import pytest

from journal.broker.security.passwords import SCRAM_HASHES, is_password, prepared, verifier_of
from journal.broker.security.permissions import Permissions
from journal.broker.security.scram import ScramExchange
from journal.broker.security.users import User, Users, verifiers_of
from journal.errors import AmqpPeerError, InvalidOperationError
from tests.support.scram import ScramClient

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
NONCE = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FINAL = f"c=biws,r={NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="

MECHANISMS = pytest.mark.parametrize("mechanism", list(SCRAM_HASHES))


def users_with(name: str, password: str, iterations: int = 4096, salt: bytes = SALT) -> Users:
    verifiers = {each: verifier_of(password, hashed, salt, iterations) for each, hashed in SCRAM_HASHES.items()}
    return Users(b"secret", {name: User(name, (), Permissions({}), verifiers)}, {})


def exchange(users: Users, mechanism: str = "SCRAM-SHA-256") -> ScramExchange:
    return ScramExchange(mechanism, users, SERVER_NONCE)


def test_the_example_of_the_rfc() -> None:
    server = exchange(users_with("user", "pencil"))
    assert server.first(FIRST) == f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    assert server.final(FINAL.encode()) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.user == "user"


@MECHANISMS
@pytest.mark.parametrize("name", ["alice", "a=b,c", "Jürgen"])
def test_both_hashes_with_a_client_that_checks_the_server(mechanism: str, name: str) -> None:
    server, client = exchange(users_with(name, "pässword"), mechanism), ScramClient(mechanism, name, "pässword")
    assert client.is_server(server.final(client.final(server.first(client.first()))))
    assert server.user == name


@MECHANISMS
@pytest.mark.parametrize(("name", "password"), [("alice", "wrong"), ("nobody", "pencil"), ("alice", "")])
def test_a_wrong_password_and_an_unknown_name_are_refused_in_the_same_words(
    mechanism: str, name: str, password: str
) -> None:
    server, client = exchange(users_with("alice", "pencil"), mechanism), ScramClient(mechanism, name, password)
    with pytest.raises(AmqpPeerError, match=f"wrong name or password: {name}"):
        server.final(client.final(server.first(client.first())))


@MECHANISMS
def test_an_unknown_name_looks_like_a_user(mechanism: str) -> None:
    """Its salt is the same each time and on every node, other than other names', as long, and as often hashed."""
    users = users_with("alice", "pencil", iterations=5000)
    (one, known), (again, _), (other, _) = (users.verifier(name, mechanism) for name in ("bob", "bob", "carol"))
    real, _ = users.verifier("alice", mechanism)
    assert not known
    assert one == again
    assert one.salt != other.salt
    assert [len(each) for each in (one.salt, one.stored_key)] == [len(each) for each in (real.salt, real.stored_key)]
    assert one.iterations == 5000


def test_a_user_without_a_password_is_unknown_to_passwords() -> None:
    users = Users(b"secret", {"alice": User("alice", (), Permissions({}), {})}, {})
    assert not users.verifier("alice", "SCRAM-SHA-256")[1]


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,a=other,n=user,r=abc",
        b"n,,m=ext,n=user,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=user,r=",
        b"n,,n=user,r=a\x00",
        b"n,,n=user",
        b"n,,n=\xff,r=abc",
        b"x,,n=user,r=abc",
    ],
)
def test_a_first_message_that_is_none_is_refused(message: bytes) -> None:
    with pytest.raises(AmqpPeerError):
        exchange(users_with("user", "pencil")).first(message)


@pytest.mark.parametrize(
    "message",
    [
        "",
        FINAL.replace("biws", "eSws"),
        FINAL.replace("biws", "b"),
        FINAL.replace(NONCE, NONCE + "x"),
        FINAL.replace(NONCE, ""),
        FINAL.partition(",p=")[0],
        FINAL.replace("dHzb", "eHzb"),
        FINAL[:-8],
        FINAL + "AAAA",
        FINAL.replace("p=", "p=="),
        "\udcff",
    ],
)
def test_a_second_message_that_does_not_fit_is_refused(message: str) -> None:
    server = exchange(users_with("user", "pencil"))
    server.first(FIRST)
    with pytest.raises(AmqpPeerError):
        server.final(message.encode(errors="surrogateescape"))


def test_a_client_may_name_itself_as_the_one_that_it_acts_for() -> None:
    assert exchange(users_with("user", "pencil")).first(b"y,a=user,n=user,r=abc")


@MECHANISMS
def test_a_password_is_checked_against_the_keys_of_scram(mechanism: str) -> None:
    verifier, _ = users_with("alice", "pencil").verifier("alice", mechanism)
    assert is_password("pencil", SCRAM_HASHES[mechanism], verifier)
    assert not is_password("pencils", SCRAM_HASHES[mechanism], verifier)


def test_two_passwords_that_are_the_same_have_different_keys() -> None:
    one, other = verifiers_of("pencil", 4096), verifiers_of("pencil", 4096)
    assert one["SCRAM-SHA-256"].stored_key != other["SCRAM-SHA-256"].stored_key


@pytest.mark.parametrize(
    ("text", "found"),
    [("I\u00adX", "IX"), ("user", "user"), ("USER", "USER"), ("\u00aa", "a"), ("\u2168", "IX"), ("a\u00a0b", "a b")],
)
def test_saslprep(text: str, found: str) -> None:
    assert prepared(text) == found


@pytest.mark.parametrize("text", ["\u0007", "\u0627\u0031", "a\u0627", "\ud800", "\u0221"])
def test_saslprep_refuses(text: str) -> None:
    with pytest.raises(ValueError, match=r"not allowed|are mixed"):
        prepared(text)


@pytest.mark.parametrize("password", ["", "\u00ad", "\u0007"])
def test_a_password_that_cannot_be_used_is_refused(password: str) -> None:
    with pytest.raises(InvalidOperationError):
        verifiers_of(password, 4096)
