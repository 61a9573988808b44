"""Tests of the bound on memory that threads share."""

from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from time import sleep

from mtcon_ray.data.memory import Room


def test_threads_never_take_more_than_the_room() -> None:
    """Large and small parts all get their turn; a part above the bound is alone."""
    room, lock, taken, most = Room(100), Lock(), [0], [0]

    def take(num_bytes: int) -> None:
        with room.taken(num_bytes):
            with lock:
                taken[0] += num_bytes
                most[0] = max(most[0], taken[0])
            sleep(0.001)
            with lock:
                taken[0] -= num_bytes

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(take, [10, 60, 100, 30, 90] * 20))
    assert 60 < most[0] <= 100
    with room.taken(1000):
        pass
