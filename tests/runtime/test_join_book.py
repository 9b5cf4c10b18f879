"""What a bucket's state says of its chunks, and which of them a worker lacks."""

from __future__ import annotations

from penstock.kernels.columns import INT64_MAX, INT64_MIN
from penstock.runtime.joining.book import Book


def test_a_book_is_the_same_after_it_was_written_and_read() -> None:
    book = Book.empty(2)
    book.add(1, 10, 99, 500)
    book.advance(700, [100, INT64_MAX])
    book.sign("first")
    assert Book.loads(book.dumps()) == book
    assert book.limits_us == [600, INT64_MIN]


def test_a_longer_range_revives_nobody_and_makes_tables_anew() -> None:
    book = Book.empty(2)
    book.add(0, 10, 99, 650)
    book.sign("short")
    book.advance(700, [100, 100])
    book.advance(700, [300, INT64_MAX])
    late = book.add(0, 1, 99, 450)
    assert book.limits_us == [400, INT64_MIN]
    assert [book.limit_us(chunk) for chunk in book.chunks] == [600, 400]
    assert book.known_by("short") is None
    assert Book.loads(book.dumps()) == book
    book.todo = (2, 0)
    book.advance(760, [300, INT64_MAX])
    assert book.take_dead() == [late]
    assert [book.limit_us(chunk) for chunk in book.chunks] == [600]


def test_a_worker_lacks_the_chunks_that_came_after_its_token() -> None:
    book = Book.empty(2)
    book.sign("nothing")
    book.add(0, 1, 99, 5)
    book.sign("one")
    book.add(1, 1, 99, 6)
    book.add(0, 1, 99, 7)
    book.sign("three")
    book.todo = (3, 0)
    numbers = {
        token: [chunk.number for chunk in book.split(book.known_by(token) or 0)[0]]
        for token in ("nothing", "one", "three")
    }
    assert numbers == {"nothing": [0, 1, 2], "one": [1, 2], "three": []}
    assert book.known_by("of a micro-batch that failed") is None


def test_old_tokens_are_forgotten() -> None:
    book = Book.empty(2)
    for number in range(100):
        book.add(0, 1, 99, number)
        book.sign(str(number))
    assert book.known_by("0") is None
    assert book.known_by("98") == 99
    assert len(book.dumps()) < 10_000


def test_chunks_die_with_their_last_tuple() -> None:
    book = Book.empty(2)
    for latest_us in (100, 900, 300):
        book.add(0, 1, 99, latest_us)
        book.add(1, 1, 99, latest_us)
    book.advance(1000, [500, 800])
    assert book.take_dead() == []  # some wait for partners
    book.todo = (6, 0)
    assert [(c.input, c.latest_us) for c in book.take_dead()] == [(0, 100), (1, 100), (0, 300)]
    book.advance(900, [500, 800])  # punctuation does not go back
    assert book.take_dead() == []
    assert [c.latest_us for c in book.chunks] == [900, 900, 300]
