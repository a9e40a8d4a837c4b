"""What the room `diagnose` adds to the screen of `dtctl top`; without dtctl.rooms.diagnose it shows no problems."""

from __future__ import annotations

from textual.pilot import Pilot

from tests.unit.render.top.test_app import Table, table, typed


def test_the_screen_shows_the_problem_of_a_task_that_failed() -> None:
    async def refresh(app: Table, pilot: Pilot[object]) -> None:
        assert any("worker:2 on host-2 has ended (OOM: killed)" in line for line in app.lines("top"))

    typed(table(), refresh)
