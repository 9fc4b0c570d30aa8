"""Time is slow while an action is in progress, and as fast as before after it."""

from holdfast.simulator.demo.slow_motion import SLOW_SPEED, SlowMotion


class Speed:
    speed = 60.0

    def go_at(self, speed: float) -> None:
        self.speed = speed


def test_time_is_slow_during_an_action_and_as_before_after_it() -> None:
    world = Speed()
    slow = SlowMotion(world)
    slow.ticked(is_acting=True)
    assert world.speed == 60, "it is off at first"
    slow.switch(is_on=True)
    for is_acting, speed in ((False, 60), (True, SLOW_SPEED), (True, SLOW_SPEED), (False, 60)):
        slow.ticked(is_acting=is_acting)
        assert world.speed == speed


def test_switching_it_off_returns_to_the_usual_speed_at_once() -> None:
    world = Speed()
    slow = SlowMotion(world)
    slow.switch(is_on=True)
    slow.ticked(is_acting=True)
    slow.switch(is_on=False)
    assert world.speed == 60


def test_a_speed_that_a_person_chooses_stays() -> None:
    world = Speed()
    slow = SlowMotion(world)
    slow.switch(is_on=True)
    slow.ticked(is_acting=True)
    slow.chosen(240)
    assert world.speed == 240
    slow.ticked(is_acting=True)
    slow.ticked(is_acting=False)
    assert world.speed == 240
    world.speed = 1.0
    slow.ticked(is_acting=True)
    assert world.speed == 1, "it never makes time faster"
