"""Compiles candidates into a content-addressed artifact store.

- `LocalBuilder(artifacts: Path).build(job: BuildCandidate) -> BuildReport`
- `artifact_folder(artifacts: Path, artifact_id: str) -> Path`
- `load_meta(artifacts: Path, artifact_id: str) -> ArtifactMeta`, raises EvaluatorError

The store: `artifacts/<artifact id>/` with the candidate's files, `kernel.so` (or what the language makes), `build.log`
and `meta.json`. A folder appears by one rename, complete; folders that begin with a dot are being built. What did not
build is kept as well, unless it was stopped at a limit.
"""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path, PurePosixPath
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread
import msgspec

from evaluators.base import BuildReport
from evaluators.guarded import GuardJob, GuardReport, plain_environment, run_guarded
from evaluators.languages import support_of
from evaluators.languages.base import BuildPlan, LanguageSupport
from messages.commands import BuildCandidate
from messages.errors import EvaluatorError
from messages.events import Built
from messages.tasks import Candidate, Target, content_hash
from messages.verdicts import DidNotBuild

_META = "meta.json"
_LOG = "build.log"
_KILLED = ("Killed signal terminated program", "No space left on device")


class ArtifactMeta(msgspec.Struct, frozen=True, kw_only=True):
    """What an artifact is: `meta.json` of its folder."""

    artifact_id: str
    candidate_id: str
    target: Target
    entry_point: str
    product: str
    outcome: Built | DidNotBuild


_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(ArtifactMeta)


def artifact_folder(artifacts: Path, artifact_id: str) -> Path:
    """Return where an artifact lies."""
    return artifacts / artifact_id


def load_meta(artifacts: Path, artifact_id: str) -> ArtifactMeta:
    """Read what an artifact is. Blocks for one small file.

    Raises:
        EvaluatorError: it is not in the store.
    """
    meta = _read_meta(artifact_folder(artifacts, artifact_id))
    if meta is None:
        raise EvaluatorError(f"artifact {artifact_id!r} is not in the store {str(artifacts)!r}: build it again")
    return meta


class LocalBuilder:
    """A `Builder` that runs the compilers of this host, at low priority, each under a guard."""

    def __init__(self, artifacts: Path) -> None:
        """Make a builder.

        Args:
            artifacts: the store; made if it is missing. Several builders may share it.
        """
        self._artifacts = artifacts.absolute()
        self._own: dict[str, Target] = {}
        self._turns: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()

    async def build(self, job: BuildCandidate) -> BuildReport:
        """Build for the job's target, or find the artifact built before.

        Raises:
            EvaluatorError: the toolchain, the disk or the target is at fault.
        """
        begun = anyio.current_time()
        support = support_of(job.candidate.language)
        await self._check_toolchain(support, job)
        refusal = _refuse_files(job.candidate) or support.refuse(job.candidate)
        if refusal is not None:
            return _report(refusal, begun)
        plan = support.plan_build(job.candidate, job.target)
        artifact_id = content_hash(
            "artifact", job.candidate.candidate_id, job.target.fingerprint, support.contract_version, *plan.command[1:]
        )
        turn = self._turns.setdefault(artifact_id, anyio.Lock())
        async with turn:
            meta = await anyio.to_thread.run_sync(_read_meta, artifact_folder(self._artifacts, artifact_id))
            if meta is not None:
                return _report(meta.outcome, begun, cached=True)
            return await self._compile(job, support, plan, artifact_id, begun)

    async def _check_toolchain(self, support: LanguageSupport, job: BuildCandidate) -> None:
        language, asked = job.candidate.language, job.target
        if language not in self._own:
            self._own[language] = await anyio.to_thread.run_sync(support.probe_target)
        own = self._own[language]
        if (own.arch, own.toolchain) != (asked.arch, asked.toolchain):
            raise EvaluatorError(
                f"asked to build for {asked.arch} with {asked.toolchain!r}, but here is {own.arch} with "
                f"{own.toolchain!r}: builders and evaluators of a run need the same compiler",
                permanent=True,
            )

    async def _compile(
        self, job: BuildCandidate, support: LanguageSupport, plan: BuildPlan, artifact_id: str, begun: float
    ) -> BuildReport:
        folder = self._artifacts / f".building-{uuid.uuid4().hex}"
        try:
            await anyio.to_thread.run_sync(_lay_out, folder, job.candidate)
            guard_job = GuardJob(
                command=plan.command,
                wall_s=plan.timeout_s,
                memory_bytes=plan.memory_bytes,
                file_bytes=plan.product_bytes,
                idle=True,
                log_path=_LOG,
                scratch=str(folder),
            )
            environment = plain_environment(TMPDIR=".", HOME=".")
            guard = await run_guarded(guard_job, cwd=folder, environment=environment)
            log = await anyio.to_thread.run_sync(_read_log, folder / _LOG)
            outcome = _judge(guard, log, plan, support, job.candidate, artifact_id)
            if isinstance(outcome, Built):
                checked = await anyio.to_thread.run_sync(support.check_product, folder / plan.product, job.candidate)
                outcome = checked or outcome
            if guard.how == "ended":
                meta = ArtifactMeta(
                    artifact_id=artifact_id,
                    candidate_id=job.candidate.candidate_id,
                    target=job.target,
                    entry_point=job.candidate.entry_point,
                    product=plan.product,
                    outcome=outcome,
                )
                await anyio.to_thread.run_sync(_store, folder, artifact_folder(self._artifacts, artifact_id), meta)
            return _report(outcome, begun, cpu_s=guard.cpu_s)
        except OSError as error:
            raise EvaluatorError(f"the artifact store {str(self._artifacts)!r} failed: {error}") from error
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(lambda: shutil.rmtree(folder, ignore_errors=True))


def _report(outcome: Built | DidNotBuild, begun: float, *, cached: bool = False, cpu_s: float = 0.0) -> BuildReport:
    return BuildReport(outcome=outcome, cached=cached, wall_s=anyio.current_time() - begun, cpu_s=cpu_s)


def _judge(
    guard: GuardReport, log: str, plan: BuildPlan, support: LanguageSupport, candidate: Candidate, artifact_id: str
) -> Built | DidNotBuild:
    """Say what a compiler's end means.

    Raises:
        EvaluatorError: it is not the candidate's fault.
    """
    if guard.how == "timed_out":
        return DidNotBuild(reason=f"compiler stopped after {plan.timeout_s:g} s")
    if guard.exit_code == 0:
        return Built(artifact_id=artifact_id, log=support.summarize_remarks(log))
    if guard.signal is not None or guard.exit_code == 127 or any(sign in log for sign in _KILLED):
        how = f"signal {guard.signal}" if guard.signal is not None else f"exit code {guard.exit_code}"
        last = log.strip().splitlines()[-1:] or ["no output"]
        raise EvaluatorError(f"the compiler {plan.command[0]!r} was stopped from outside ({how}): {last[0][:200]}")
    return support.explain_failure(log, candidate)


def _refuse_files(candidate: Candidate) -> DidNotBuild | None:
    """Say why the candidate's files cannot be laid out in a folder, if so."""
    seen: set[str] = set()
    for file in candidate.files:
        path = PurePosixPath(file.path)
        parts = path.parts
        if not parts or path.is_absolute() or ".." in parts or any(part.startswith(("-", ".")) for part in parts):
            return DidNotBuild(reason=f"file name {file.path!r} cannot be used: give a plain relative path")
        if str(path) != file.path or file.path in seen or "\0" in file.path:
            return DidNotBuild(reason=f"file name {file.path!r} cannot be used: it is given twice or not plain")
        seen.add(file.path)
    return None if candidate.files else DidNotBuild(reason="the candidate has no files")


def _lay_out(folder: Path, candidate: Candidate) -> None:
    folder.mkdir(parents=True)
    for file in candidate.files:
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text, encoding="utf-8", errors="surrogatepass", newline="")


def _store(folder: Path, final: Path, meta: ArtifactMeta) -> None:
    """Publish a built folder. If somebody else published the same artifact meanwhile, theirs stays."""
    (folder / _META).write_bytes(_encoder.encode(meta))
    try:
        os.rename(folder, final)  # noqa: PTH104 - Path.rename would say the same less plainly
    except OSError:
        if _read_meta(final) is None:
            raise


def _read_meta(folder: Path) -> ArtifactMeta | None:
    try:
        return _decoder.decode((folder / _META).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise EvaluatorError(f"artifact {str(folder)!r} cannot be read: {error}; remove it") from error


def _read_log(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
