"""How much goes into a batch."""

from __future__ import annotations

from journal.sources.sizing import Sizing


def test_a_batch_that_was_too_much_is_halved_down_to_one_record() -> None:
    sizing = Sizing(10)
    sizes = []
    for _ in range(5):
        sizing.halve(sizing.records_max)
        sizes.append(sizing.records_max)
    assert sizes == [5, 2, 1, 1, 1]


def test_a_batch_that_failed_makes_the_next_ones_a_fourth_of_it_and_one_record_is_not_divided() -> None:
    sizing = Sizing(100)
    sizes = []
    for count in (64, 1, 16, 100):
        sizing.failed(count)
        sizes.append((sizing.records_max, sizing.letters_max))
    assert sizes == [(16, 16), (16, 16), (4, 4), (1, 1)]


def test_batches_that_landed_make_the_next_ones_larger_up_to_where_they_were() -> None:
    sizing = Sizing(100)
    sizing.halve(64)
    sizes = []
    for _ in range(14):
        sizing.landed(0)
        sizes.append(sizing.records_max)
    assert sizes[:3] == [36, 40, 45]
    assert sizes[-1] == 100


def test_while_one_of_some_letters_is_suspected_each_has_a_batch_of_its_own() -> None:
    sizing = Sizing(100)
    assert sizing.letters_max == 100
    sizing.suspect(3)
    allowed = []
    for letters in (1, 0, 1, 1):
        allowed.append(sizing.letters_max)
        sizing.landed(letters)
    assert allowed == [1, 1, 1, 1]
    assert sizing.letters_max == 100
    sizing.suspect(3)
    sizing.suspect(0)
    assert sizing.letters_max == 100
