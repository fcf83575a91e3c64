"""TLS of the AMQP front end. Certificates are read again when their files change: connections that exist keep the old
ones, and the next one has the new ones."""

from __future__ import annotations

import logging
import os
import ssl
from pathlib import Path

from journal.amqp.security_settings import SecuritySettings
from journal.errors import ConfigError

log = logging.getLogger(__name__)

_Marks = tuple[tuple[int, int, int], ...]


class ServerTls:
    """The server's certificate and key, and whom it trusts."""

    def __init__(self, settings: SecuritySettings) -> None:
        """Raises ConfigError if the files cannot be used."""
        self._settings = settings
        self._marks = self._marks_now()
        self._context = self._made()

    def context(self) -> ssl.SSLContext:
        """The context of a new connection. While changed files cannot be used, it is the one before."""
        try:
            marks = self._marks_now()
            if marks == self._marks:
                return self._context
            # kept before the files are read: files that are replaced one after the other are tried after each change
            self._marks = marks
            self._context = self._made()
        except ConfigError as error:
            log.error("the certificates before stay in use: %s", error)
        else:
            log.info("certificates were read again: %s", self._settings.certificate)
        return self._context

    def _files(self) -> list[Path]:
        settings = self._settings
        return [each for each in (settings.certificate, settings.key, settings.clients_ca) if each is not None]

    def _marks_now(self) -> _Marks:
        try:
            found = [os.stat(file) for file in self._files()]
        except OSError as error:
            raise ConfigError(f"{error.filename} cannot be read for TLS: {error.strerror}") from None
        return tuple((each.st_ino, each.st_mtime_ns, each.st_size) for each in found)

    def _made(self) -> ssl.SSLContext:
        settings = self._settings
        assert settings.certificate is not None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        file = settings.certificate
        try:
            # without a password, OpenSSL would ask for one at the terminal
            context.load_cert_chain(file, settings.key, password=lambda: b"")
            if settings.clients_ca is not None:
                file = settings.clients_ca
                context.load_verify_locations(file)
                needed = settings.clients_need_certificates
                context.verify_mode = ssl.CERT_REQUIRED if needed else ssl.CERT_OPTIONAL
        except (OSError, ValueError) as error:
            raise ConfigError(f"{file} cannot be used for TLS: {error}") from None
        return context


def common_name(certificate: object) -> str:
    """The only common name of a certificate's subject, in the form of `SSLSocket.getpeercert`; empty without one."""
    subject = certificate.get("subject", ()) if isinstance(certificate, dict) else ()
    names = [value for part in subject for key, value in part if key == "commonName"]
    return names[0] if len(names) == 1 else ""
