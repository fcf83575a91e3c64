"""Commands that run when a node's role changes, to move an address or to tell somebody.

They run one after another, in the order of the changes, in a thread of their own. A command that fails, hangs or is
missing is logged and decides nothing.
"""

from __future__ import annotations

import logging
import os
import queue
import shlex
import signal
import subprocess
import sys
import threading

from journal.config import Settings
from loaders.node.roles import Role

log = logging.getLogger(__name__)

_WAITING_MAX = 100


class RoleHooks:
    """The commands of the settings `on_active_command`, `on_standby_command`, `on_fenced_command`."""

    def __init__(self, settings: Settings) -> None:
        commands = {
            Role.ACTIVE: settings.on_active_command,
            Role.STANDBY: settings.on_standby_command,
            Role.FENCED: settings.on_fenced_command,
        }
        self._commands = {role: shlex.split(command) for role, command in commands.items() if command.strip()}
        self._environment = {
            "KAFKA_JOURNAL_TOPIC_PREFIX": settings.topic_prefix,
            "KAFKA_JOURNAL_JOURNAL": settings.journal,
            "KAFKA_JOURNAL_NODE": settings.node,
            "KAFKA_JOURNAL_BOOTSTRAP_SERVERS": settings.bootstrap_servers,
        }
        self._timeout_s = settings.hook_timeout_ms / 1000
        self._waiting: queue.Queue[tuple[list[str], dict[str, str]] | None] = queue.Queue(_WAITING_MAX)
        self._thread = threading.Thread(target=self._run, name="kafka-journal-hooks", daemon=True)
        if self._commands:
            self._thread.start()

    def changed(self, was: Role, role: Role, epoch: int, reason: str) -> None:
        """Queue the command of the new role, if the role has one. A node that gives up being active runs the standby's
        command at once, and only once, so that what it moves (an address, say) is free before a successor needs it."""
        if (was, role) == (Role.STOPPING, Role.STANDBY):
            return
        gives_up = (was, role) == (Role.ACTIVE, Role.STOPPING)
        command = self._commands.get(Role.STANDBY if gives_up else role)
        if command is None:
            return
        told = {"KAFKA_JOURNAL_ROLE": role.value, "KAFKA_JOURNAL_EPOCH": str(epoch), "KAFKA_JOURNAL_REASON": reason}
        try:
            self._waiting.put_nowait((command, told))
        except queue.Full:
            log.error("%d commands of role changes wait: %s is not run", _WAITING_MAX, shlex.join(command))

    def close(self) -> None:
        """Wait for all queued commands, each within its time-out."""
        if not self._commands:
            return
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            command, told = waiting
            self._call(command, os.environ | self._environment | told)

    def _call(self, command: list[str], environment: dict[str, str]) -> None:
        shown = shlex.join(command)
        try:
            # the command's output goes to standard error, as ours is data. Ctrl-C does not reach its own session, which
            # ends with everything that the command has started
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr, start_new_session=True
            )
        except (OSError, ValueError) as error:  # a value that no environment variable can hold raises ValueError
            log.error("%s cannot be run: %s", shown, error)
            return
        try:
            code = process.wait(self._timeout_s)
        except subprocess.TimeoutExpired:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except OSError as error:  # the command runs as another user and is left alone
                log.error("%s takes longer than %g s (hook_timeout_ms): %s", shown, self._timeout_s, error)
                return
            process.wait()
            log.error("%s was killed after %g s (hook_timeout_ms)", shown, self._timeout_s)
        else:
            if code:
                log.error("%s ended with %d", shown, code)
