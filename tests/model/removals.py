"""The steps that the model can go without, each with the reason why the design has it."""

from __future__ import annotations

from enum import Enum


class Removal(Enum):
    """One step of the protocol, removed."""

    CHECK_AFTER_INIT = "init proves nothing: the newest instance wins, so a zombie's init fences its own successor"
    READY = "the gate's marks may be old by the time it looks: only a commit proves that nobody has initialised since"
    READY_IN_TIME = "a late answer says who was newest when READY was committed, not who is now"
    READY_AGAIN = "so does a READY that is found in the WAL: after a recovery another one is committed"
    NONCE_BESIDE_EPOCH = (
        "two activations may try for the same epoch: the counter's epoch alone does not say whose it is"
    )
    NONCE_BESIDE_NAME = "two processes may run under one node name: the name alone does not say whose the counter is"
    TAILS_AFTER_INIT = "until the init has returned, the predecessor goes on writing frames behind those tails"
    TAILS_AGAIN = "another activation may have written a whole epoch before a later init: tails read earlier are old"
    CONTROL_AFTER_INIT = "until the init has returned, another activation may still take the epoch that was read"
    GATE_EXACT = "a larger mark belongs to a load that must see more: what follows the own marker is a successor's"
    READ_BACK = "a commit of unknown outcome may have succeeded: resending without looking writes the group twice"
    READ_BACK_AFTER_INIT = "until an init has returned, the last transaction may still commit, or become visible"
    FENCED_IS_NOT_FAILED = "the library repeats EndTxn by itself and may be told fenced after its first one succeeded"
    UNKNOWN_IS_NOT_FAILED = "an EndTxn that timed out may still be under way"
    LAPSED_IS_NOT_FAILED = "a node's own clock says nothing about what the coordinator has committed"
    COUNTER_NOT_REWRITTEN = "without an init in between, the first try may still arrive: the epoch is begun twice"
    HIGH_WATERMARK = "another writer's open transaction holds the LSO back: the counter read below it is old"
    TAILS_TO_HIGH_WATERMARK = "another writer's open transaction hides committed frames: tails below the LSO are old"
    READ_BACK_TO_HIGH_WATERMARK = "a group that such a transaction hides is not missing: resent, it is there twice"
    END_AFTER_INIT = "until the init has returned, a successor may write the counter behind the end that was asked for"
    CLAIM_ABOVE_TAILS = "the counter may have lost its newest rows: an epoch that the WAL knows is taken again"
    NEWER_MARKER = "the counter may have lost its newest row: the marker that went with it, read back, is a successor's"
    CHECK_AFTER_DOUBT = "the first of two EndTxn may still arrive, and commit half of the next group"
    CHECK_BEFORE_INIT = "a node that finds itself replaced does not fence its successor"
    EVERY_MARKER = "a group is called failed only once the newer marker has been seen in every shard it touches"


SHADOWED = frozenset({Removal.CHECK_AFTER_INIT, Removal.READY_AGAIN, Removal.HIGH_WATERMARK, Removal.END_AFTER_INIT})
"""A newer marker that is read back makes up for these while the counter is whole: they are removed together with it."""
