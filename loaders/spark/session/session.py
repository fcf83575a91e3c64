"""A SparkSession with the packages that a job needs, or an error that says what is missing and what mends it.

A session that exists already (a notebook's, `spark-submit`'s) is taken as it is. Its packages were fixed when its JVM
started, so they are checked, not changed.
"""

from __future__ import annotations

import atexit
import logging
import os
import pwd
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import reduce
from pathlib import Path

from journal.embedded.distribution import CACHE_VARIABLE, cache_directory
from journal.embedded.downloads import one_at_a_time
from journal.errors import ConfigError, MissingExtraError
from loaders.spark.session.packages import SparkPart, installed_pyspark, not_imported, packages

try:
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import AnalysisException
    from pyspark.sql import SparkSession
except ImportError as error:
    raise not_imported(error) from error

log = logging.getLogger(__name__)

_PACKAGES = "spark.jars.packages"
_DELTA_GROUP = "io.delta:"
_DELTA_SETTINGS: Mapping[str, str] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""The environment variable in which PySpark finds the JVM that started it."""
_WAREHOUSE = Path("spark-warehouse")
"""Where Spark keeps tables that have a name. Spark creates it in the working directory, even without tables."""
_FUNCTIONS = "org.apache.spark.sql.functions"
_LOOKED_UP = (
    ("PythonUtils",),
    ("PythonUtils", "toSeq"),
    ("PythonSQLUtils",),
    (_FUNCTIONS,),
    (_FUNCTIONS, "col"),
    (_FUNCTIONS, "lit"),
    (_FUNCTIONS, "when"),
    ("org.apache.spark.sql.classic.SparkSession",),
    ("org.apache.spark.sql.expressions.Window",),
    ("org",),
    ("org", "apache"),
    ("org", "apache", "hadoop"),
    ("org", "apache", "hadoop", "fs"),
    ("org", "apache", "hadoop", "fs", "Path"),
)
"""Names that PySpark, and code that uses Hadoop's file systems, look up in the JVM many times."""
_WORKERS, _WORKERS_MODULE = "spark.python.daemon.module", "loaders.spark.session.workers"
_TIME_ZONE = "spark.sql.session.timeZone"
"""Times are shown in UTC, and days begin in UTC, wherever a job runs."""
_CALL_SITES = "spark.python.sql.dataFrameDebugging.enabled"
"""Whether PySpark tells the JVM for each expression which line of a program made it, so that an error of Spark's can
name the line. That takes six calls of the JVM, and one call makes the expression."""


def make_session(
    name: str,
    *,
    parts: Collection[SparkPart] = (),
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """The running session, or a new one, that has `parts`.

    `master` is a URL; without it the environment decides (`spark-submit`, spark-defaults). `settings` are Spark's own
    and override ours; our packages are added to theirs. Raises MissingExtraError if Spark does not start or lacks a
    part. Raises ConfigError for a PySpark that is too old, and for a master or setting that the running
    session was not started with.
    """
    wanted = packages(installed_pyspark(), parts)
    asked = dict(settings or {}) | ({} if master is None else {"spark.master": master})
    running = running_session()
    if running is not None:
        _check_settings(running, asked)
        spark = running
    else:
        listed = [each for each in (asked.pop(_PACKAGES, ""), *wanted) if each]
        own = {_TIME_ZONE: "UTC", _WORKERS: _WORKERS_MODULE, _CALL_SITES: "false", **_settings_of(parts)}
        if listed:
            own[_PACKAGES] = ",".join(listed)
        spark = _started(name, own | asked, wanted)
    _look_up_once(spark)
    check_parts(spark, parts)
    return spark


def running_session() -> SparkSession | None:
    """The session that this process has already."""
    return SparkSession.getActiveSession()


def is_submitted() -> bool:
    """Whether `spark-submit` started this process. Its JVM's packages are fixed then, even before there is a
    session."""
    return _SUBMITTED in os.environ


def check_parts(spark: SparkSession, parts: Collection[SparkPart]) -> None:
    """Raises MissingExtraError for parts that the session lacks, with the options that add them."""
    absent = [part for part in SparkPart if part in parts and not _FINDS[part](spark)]
    if absent:
        coordinates = ",".join(packages(spark.version, absent))
        names = " and ".join(part.value for part in absent)
        settings = "".join(f" --conf {key}={value}" for key, value in _settings_of(absent).items())
        raise MissingExtraError(
            f"the running Spark {spark.version} was started without {names}: "
            f"start it with --packages {coordinates}{settings}"
        )


def _started(name: str, settings: Mapping[str, str], wanted: Collection[str]) -> SparkSession:
    _require_user_name()
    # the JVM, and workers on this machine, would look for `python3` otherwise, which may lack this package
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    warehouse = _WAREHOUSE.absolute()
    if not warehouse.exists():
        atexit.register(_removed_if_empty, warehouse)
    getting = _getting_packages() if _PACKAGES in settings and not is_submitted() else nullcontext()
    try:
        with getting, _signals_are_ours():
            return builder.getOrCreate()
    except RuntimeError as error:  # PySpark raises nothing more precise for a JVM that ends at once
        raise MissingExtraError(_did_not_start(wanted)) from error


def _require_user_name() -> None:
    """Raises ConfigError if the user has no name: Hadoop asks for it, and Spark does not start without one."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError as error:
        raise ConfigError(
            f"Spark does not run as user id {os.getuid()}, which has no name here: add one to /etc/passwd (in a "
            "container, when it starts), or run it as a user who has one"
        ) from error


_starting: set[int] = set()
"""Threads that are starting a JVM now."""


def _leave_sigterm_to_python() -> None:
    """Make a forked child ignore SIGTERM if it is about to become a JVM, as PySpark makes it ignore Ctrl-C."""
    if threading.get_ident() in _starting:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


os.register_at_fork(after_in_child=_leave_sigterm_to_python)


@contextmanager
def _signals_are_ours() -> Iterator[None]:
    """Keep SIGTERM from a JVM that is started meanwhile. systemd and `timeout` signal all processes of a service, and a
    job that stops at SIGTERM needs its JVM until it has stopped. The JVM ends after this process, when its standard
    input closes."""
    _starting.add(threading.get_ident())
    try:
        yield
    finally:
        _starting.discard(threading.get_ident())


@contextmanager
def _getting_packages() -> Iterator[None]:
    """Let one process at a time start Spark: of two that fill Ivy's cache together, both can find incomplete files."""
    lock = cache_directory() / "spark-packages.lock"
    with ExitStack() as held:
        try:
            lock.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(one_at_a_time(lock, "starting Spark", log.info))
        except OSError as error:
            raise ConfigError(
                f"cannot lock {lock} ({error}): set {CACHE_VARIABLE} to a directory where that can be done"
            ) from error
        yield


def _look_up_once(spark: SparkSession) -> None:
    """Look up the names of `_LOOKED_UP` once and keep the results. Otherwise Py4J searches every jar for a class of
    such a name each time, though the result stays the same while the JVM lives."""
    for *holders, name in _LOOKED_UP:
        holder = reduce(getattr, holders, spark._jvm)
        setattr(holder, name, getattr(holder, name))


def _removed_if_empty(directory: Path) -> None:
    with suppress(OSError):
        directory.rmdir()


def _settings_of(parts: Collection[SparkPart]) -> Mapping[str, str]:
    return _DELTA_SETTINGS if SparkPart.DELTA in parts else {}


def _check_settings(spark: SparkSession, asked: Mapping[str, str]) -> None:
    for key, value in asked.items():
        found = spark.conf.get(key, None)
        if found != value:
            raise ConfigError(f"the running Spark has {key}={found or 'nothing'}, not {value}: stop it first")


def _did_not_start(wanted: Collection[str]) -> str:
    what = "Spark did not start; what it said is above. It needs Java 17 or newer"
    if not wanted:
        return what
    told = (
        f"{what}, and from a Maven repository {', '.join(wanted)}: if one is 'not found' there, name another "
        "repository (spark.jars.repositories, spark.jars.ivySettings)"
    )
    if not any(each.startswith(_DELTA_GROUP) for each in wanted):
        return told
    return (
        f"{told}; to read an archive of Parquet files, which needs no Delta Lake, start this by spark-submit without it"
    )


def _finds_delta(spark: SparkSession) -> bool:
    """Whether Spark has Delta Lake and its SQL extension, which a session that was started by hand may lack."""
    if _DELTA_SETTINGS["spark.sql.extensions"] not in (spark.conf.get("spark.sql.extensions", "") or ""):
        return False
    try:
        spark.read.format("delta").load("/nowhere")
    except AnalysisException:
        return True
    except Py4JJavaError:
        return False
    return True


_FINDS: Mapping[SparkPart, Callable[[SparkSession], bool]] = {
    SparkPart.DELTA: _finds_delta,
}
