"""Checks that take more than a minute and run next to all other tests."""

from support.waiting import until


def test_a_command_outlives_the_minute_that_nobody_asked_for(unasked):
    made, command, outcome = unasked
    assert outcome.result(timeout=90)
    assert command.pid in [process.pid for process in made.commands.list()]
    until("the end of its first sleep", lambda: made.files.exists("lived"))
