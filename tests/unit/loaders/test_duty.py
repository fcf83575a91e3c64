"""What a node does next: a table of all that it may know, and the rules that hold whatever it knows."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from loaders.node.duty import Act, ActiveFacts, Duty, HandOverRequest, StandbyFacts
from loaders.node.liveness import LastActive

SILENCE_S, HANDOVER_S, LONE_S = 2.0, 5.0, 20.0
ME, OTHER, THIRD = "me", "other", "third"

ACTIVE = LastActive(7, OTHER, released=False)
LEFT = LastActive(7, OTHER, released=True)
LEFT_TO_ME = LastActive(7, OTHER, released=True, to=ME)
LEFT_TO_THIRD = LastActive(7, OTHER, released=True, to=THIRD)
MINE = LastActive(7, ME, released=False)
PATIENT = replace(ACTIVE, fence_check_s=3.0)
QUICK = replace(ACTIVE, fence_check_s=0.5)

FIT = StandbyFacts(newest=ACTIVE, still_s=0.0, member=True, fit=True, built=True)
GRANTED = replace(FIT, granted=True)


def duty(*, fail_back: bool = False) -> Duty:
    return Duty(ME, silence_s=SILENCE_S, handover_s=HANDOVER_S, lone_start_s=LONE_S, fail_back=fail_back)


STANDBY = {
    "a fit standby watches an active node": (FIT, Act.WAIT),
    "so does one that holds the duty": (GRANTED, Act.WAIT),
    "whoever holds the duty takes over from a silent node": (replace(GRANTED, still_s=2.0), Act.ACTIVATE),
    "others do not": (replace(FIT, still_s=2.0), Act.WAIT),
    "nor it from one that may be silent for longer": (replace(GRANTED, newest=PATIENT, still_s=5.9), Act.WAIT),
    "until that has been": (replace(GRANTED, newest=PATIENT, still_s=6.0), Act.ACTIVATE),
    "one that may be silent for less is gone sooner": (replace(GRANTED, newest=QUICK, still_s=1.0), Act.ACTIVATE),
    "nor it while another one is activating, which loads for long": (
        replace(GRANTED, still_s=2.0, activating=THIRD),
        Act.WAIT,
    ),
    "that takes the journal from one that left, too": (replace(GRANTED, newest=LEFT, activating=THIRD), Act.WAIT),
    "or was named, and waits for workers": (
        replace(GRANTED, newest=LEFT_TO_THIRD, still_s=5.0, activating=THIRD),
        Act.WAIT,
    ),
    "but a named successor does what it was named for": (
        replace(FIT, newest=LEFT_TO_ME, activating=THIRD),
        Act.ACTIVATE,
    ),
    "a journal that was never active is activated at once": (replace(GRANTED, newest=None), Act.ACTIVATE),
    "but not without the duty": (replace(FIT, newest=None), Act.WAIT),
    "a journal whose node left is activated at once": (replace(GRANTED, newest=LEFT), Act.ACTIVATE),
    "a named successor needs no duty": (replace(FIT, newest=LEFT_TO_ME), Act.ACTIVATE),
    "nor the group": (replace(FIT, newest=LEFT_TO_ME, member=False), Act.ACTIVATE),
    "nor to be fit any more": (replace(FIT, newest=LEFT_TO_ME, fit=False), Act.ACTIVATE),
    "but to have a copy: others would wait for it at its gate": (
        replace(FIT, newest=LEFT_TO_ME, fit=False, built=False),
        Act.WAIT,
    ),
    "others leave a named successor its time": (replace(GRANTED, newest=LEFT_TO_THIRD, still_s=4.9), Act.WAIT),
    "and no longer": (replace(GRANTED, newest=LEFT_TO_THIRD, still_s=5.0), Act.ACTIVATE),
    "its own last life counts as another node": (replace(GRANTED, newest=MINE, still_s=1.9), Act.WAIT),
    "until that is silent": (replace(GRANTED, newest=MINE, still_s=2.0), Act.ACTIVATE),
    "a fit standby joins": (replace(FIT, member=False), Act.JOIN),
    "one that is not fit joins if nobody is": (replace(FIT, fit=False, member=False), Act.JOIN),
    "it stays then": (replace(FIT, fit=False), Act.WAIT),
    "it activates then": (replace(GRANTED, fit=False, still_s=2.0), Act.ACTIVATE),
    "but not before its copy is built": (replace(GRANTED, fit=False, built=False, still_s=2.0), Act.WAIT),
    "as it would wait longer at its gate": (replace(GRANTED, fit=False, built=False, newest=None), Act.WAIT),
    "however long that takes, if nobody is active": (replace(GRANTED, fit=False, built=False, still_s=20.0), Act.WAIT),
    "and then leaves the duty to one that is fit": (
        replace(GRANTED, fit=False, built=False, others_fit=(THIRD,), still_s=2.0),
        Act.LEAVE,
    ),
    "it does not join if another is fit": (replace(FIT, fit=False, member=False, others_fit=(THIRD,)), Act.WAIT),
    "it leaves then": (replace(FIT, fit=False, others_fit=(THIRD,)), Act.LEAVE),
    "even if it holds the duty": (replace(GRANTED, fit=False, others_fit=(THIRD,), still_s=2.0), Act.LEAVE),
    "it joins if the fit one takes over for too long": (
        replace(FIT, fit=False, member=False, others_fit=(THIRD,), still_s=20.0),
        Act.JOIN,
    ),
    "and activates": (replace(GRANTED, fit=False, others_fit=(THIRD,), still_s=20.0), Act.ACTIVATE),
    "after a failed activation it rests": (replace(GRANTED, newest=LEFT, rested=False), Act.WAIT),
    "also when it was named": (replace(FIT, newest=LEFT_TO_ME, rested=False), Act.WAIT),
    "and leaves the duty to one that is fit": (
        replace(GRANTED, newest=LEFT, rested=False, others_fit=(THIRD,)),
        Act.LEAVE,
    ),
    "however long that takes": (
        replace(GRANTED, newest=LEFT, rested=False, others_fit=(THIRD,), still_s=20.0),
        Act.LEAVE,
    ),
}


@pytest.mark.parametrize("case", STANDBY)
def test_a_standby_does_what_the_table_says(case: str) -> None:
    facts, expected = STANDBY[case]
    assert duty().standby(facts).act is expected, case


ASKED = HandOverRequest(7, ME, 0.0)

FAIL_BACK = {
    "a preferred node that is fit asks for the journal": (FIT, Act.ASK),
    "not while it is not fit": (replace(FIT, fit=False), Act.WAIT),
    "not after a failed activation": (replace(FIT, rested=False), Act.WAIT),
    "not where it had better leave it": (replace(FIT, may_ask=False), Act.WAIT),
    "not from another preferred one": (replace(FIT, active_preferred=True), Act.WAIT),
    "not from a dead one": (replace(FIT, still_s=2.0), Act.WAIT),
    "nor when another one takes over from that": (replace(FIT, still_s=2.0, activating=THIRD), Act.WAIT),
    "not from its own last life": (replace(FIT, newest=MINE), Act.WAIT),
    "not from nobody": (replace(FIT, newest=None), Act.WAIT),
    "not twice": (replace(FIT, request=ASKED), Act.WAIT),
    "unless nobody heard": (replace(FIT, request=ASKED._replace(age_s=15.0)), Act.ASK),
    "an older epoch's request is none": (replace(FIT, request=ASKED._replace(epoch=6)), Act.ASK),
}


@pytest.mark.parametrize("case", FAIL_BACK)
def test_a_preferred_standby_does_what_the_table_says(case: str) -> None:
    facts, expected = FAIL_BACK[case]
    assert duty(fail_back=True).standby(facts).act is expected, case
    assert duty().standby(facts).act is not Act.ASK


RUNNING = ActiveFacts(epoch=7, newest_epoch=7, others_fit=(OTHER, THIRD))

ACTIVE_NODE = {
    "an active node goes on": (RUNNING, Act.WAIT, ""),
    "one that failed steps down": (replace(RUNNING, failure="fenced"), Act.STEP_DOWN, ""),
    "a newer epoch makes it step down": (replace(RUNNING, newest_epoch=8), Act.STEP_DOWN, ""),
    "one that is cut off steps down": (replace(RUNNING, lapsed=True, current=False), Act.STEP_DOWN, ""),
    "a group's coordinator that moves costs nothing": (replace(RUNNING, lapsed=True), Act.WAIT, ""),
    "nor does a slow commit": (replace(RUNNING, current=False), Act.WAIT, ""),
    "it belongs to the group": (replace(RUNNING, member=False), Act.JOIN, ""),
    "asked to, it hands over to the best": (
        replace(RUNNING, request=HandOverRequest(7, "", 0.0)),
        Act.HAND_OVER,
        OTHER,
    ),
    "or to whom it was told": (replace(RUNNING, request=HandOverRequest(7, THIRD, 0.0)), Act.HAND_OVER, THIRD),
    "not to one that is not fit": (replace(RUNNING, request=HandOverRequest(7, "fourth", 0.0)), Act.WAIT, ""),
    "not to nobody": (replace(RUNNING, others_fit=(), request=HandOverRequest(7, "", 0.0)), Act.WAIT, ""),
    "not for another epoch": (replace(RUNNING, request=HandOverRequest(6, "", 0.0)), Act.WAIT, ""),
    "not much later": (replace(RUNNING, request=HandOverRequest(7, "", 5.0)), Act.WAIT, ""),
    "unless somebody waits for it": (
        replace(RUNNING, request=HandOverRequest(7, "", 5.0, awaited=True)),
        Act.HAND_OVER,
        OTHER,
    ),
}


@pytest.mark.parametrize("case", ACTIVE_NODE)
def test_an_active_node_does_what_the_table_says(case: str) -> None:
    facts, expected, to = ACTIVE_NODE[case]
    decision = duty().active(facts)
    assert (decision.act, decision.to) == (expected, to), case


def test_a_node_that_steps_down_names_what_keeps_it_out_of_the_group_if_that_is_known() -> None:
    lapsed = replace(RUNNING, lapsed=True, current=False)
    assert duty().active(lapsed).reason.endswith("could not commit: cut off from Kafka, or stopped")
    assert duty().active(replace(lapsed, problem="refused")).reason.endswith("could not commit: refused")


FITNESS = ((False, False), (False, True), (True, True))
"""Fit and built: whoever is fit has a copy."""


def every_standby() -> list[StandbyFacts]:
    flags = (False, True)
    return [
        StandbyFacts(newest, still_s, member, granted, *fitness, rested, others, preferred, request, activating)
        for newest, still_s, member, granted, fitness, rested, others, preferred, request, activating in product(
            (None, ACTIVE, LEFT, LEFT_TO_ME, LEFT_TO_THIRD, MINE),
            (0.0, 2.0, 5.0, 20.0),
            flags,
            flags,
            FITNESS,
            flags,
            ((), (THIRD,)),
            flags,
            (None, ASKED),
            ("", OTHER),
        )
        if member or not granted
    ]


def test_whatever_it_knows_a_standby_never_activates_while_another_node_writes_or_without_right() -> None:
    for facts in every_standby():
        decision = duty(fail_back=True).standby(facts)
        if decision.act is Act.ACTIVATE:
            assert facts.rested
            assert decision.reason
            assert facts.built
            named = facts.newest is not None and facts.newest.to == ME
            assert named or (facts.granted and not facts.activating)
            assert facts.newest is None or facts.newest.released or facts.still_s >= SILENCE_S


def test_a_standby_alone_with_the_duty_and_a_copy_activates_while_nobody_is_active() -> None:
    for facts in every_standby():
        nobody = facts.newest is None or facts.newest == LEFT or facts.still_s >= HANDOVER_S
        able = facts.granted and facts.built and facts.rested
        if able and nobody and not facts.others_fit and not facts.activating:
            assert duty().standby(facts).act is Act.ACTIVATE, facts


def test_joining_and_leaving_come_to_rest() -> None:
    for facts in every_standby():
        decision = duty().standby(facts)
        if decision.act in (Act.JOIN, Act.LEAVE):
            then = replace(facts, member=decision.act is Act.JOIN, granted=False)
            assert duty().standby(then).act not in (Act.JOIN, Act.LEAVE), facts
