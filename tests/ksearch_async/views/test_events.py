"""Events and facts as programs get them."""

from __future__ import annotations

import pytest

from ksearch_async.views.events import public_form
from messages.events import JobLost, JobsUnserved


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (JobLost(job_id="j", kind="evaluate", error="broken"), "job.lost"),
        (
            JobsUnserved(kind="evaluate", queue="q", role="evaluator", waiting_s=20.0, detail="nobody is there"),
            "jobs.unserved",
        ),
    ],
)
def test_the_kind_is_that_of_the_message_whatever_its_fields_are_called(message: JobLost, kind: str) -> None:
    told = public_form(message)
    assert (told["kind"], told["job_kind"]) == (kind, "evaluate")
