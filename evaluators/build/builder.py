"""Builds candidates into a content-addressed artifact store.

The store: `artifacts/<artifact id>/` with the candidate's files, `kernel.so` (or what the language makes), `build.log`
and `meta.json`. A folder appears by one rename, complete; folders that begin with a dot are being built. Failed builds
are kept as well, unless a limit stopped them.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import uuid
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread
import msgspec

from evaluators.base import BuildReport
from evaluators.build.folders import foreign_entry, is_plain_name, keep_only, name_clash, remove_tree
from evaluators.languages import support_of
from evaluators.languages.base import BuildPlan, CalledWith, LanguageSupport
from evaluators.process.guarded import GuardJob, GuardReport, WarmProcess, plain_environment, run_guarded
from evaluators.process.printed import printable
from evaluators.process.sandbox.probe import require_layers
from evaluators.process.sandbox.profiles import readable_by
from messages.base import EvaluatorError, Isolation, Language
from messages.commands import BuildCandidate
from messages.events import Built
from messages.tasks import Candidate, Target, content_hash
from messages.verdicts import DidNotBuild

_LEAST_BYTES = 1 << 20


def is_full(folder: Path) -> bool:
    """Return True if less than a mebibyte, or no file, can be added in a folder."""
    found = os.statvfs(folder)
    has_no_files_left = found.f_files > 0 and found.f_favail == 0
    return found.f_bavail * found.f_frsize < _LEAST_BYTES or has_no_files_left


META = "meta.json"
"""File with the metadata in an artifact's folder."""
_LOG = "build.log"
_STARVED_SHARE = 0.5
"""Share of one core. A compiler stopped at its limit while it could run, with less than this, may have been about to
end. One that sleeps had all the time that it needed."""
_STOPPED = re.compile(
    r"^\S+: fatal error: Killed signal terminated program \S+$"  # g++ on its own passes
    r"|^collect2: fatal error: \S+ terminated with signal 9 "
    r"|^\S+: error: unable to execute command: Killed$"  # clang
    r"|^nvcc error +: '\S+' died due to signal 9 "
    r"|^\S+: fatal error: (error writing to|cannot write|can't create) .*: No space left on device$"
    r"|^(\S*ld|\S*as|cc1plus): .*No space left on device$",
    re.MULTILINE,
)
"""Lines of compilers that ended because of the host. A source can have them printed, too, so they are believed once."""


class _StoppedError(EvaluatorError):
    """A compiler was stopped from outside, by its own words."""


class ArtifactMeta(msgspec.Struct, frozen=True, kw_only=True):
    """Metadata of an artifact: `meta.json` of its folder."""

    artifact_id: str
    candidate_id: str
    target: Target
    entry_point: str
    product: str
    product_digest: str = ""
    """blake2b-128 (hex) of the product; empty if nothing was built."""
    outcome: Built | DidNotBuild


_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(ArtifactMeta)


def artifact_folder(artifacts: Path, artifact_id: str) -> Path:
    """Return the path of an artifact."""
    return artifacts / artifact_id


def load_meta(artifacts: Path, artifact_id: str) -> ArtifactMeta:
    """Read an artifact's metadata, and check that its product is unchanged. Blocks while it reads.

    Raises:
        EvaluatorError: it is not in the store, or it is damaged; then it is removed.
    """
    meta = _read_whole(artifact_folder(artifacts, artifact_id))
    if meta is None:
        raise EvaluatorError(f"artifact {artifact_id!r} is not in the store {str(artifacts)!r}: build it again")
    return meta


class LocalBuilder:
    """A `Builder` that runs the compilers of this host, at low priority, each under a guard."""

    def __init__(self, artifacts: Path, *, isolation: Isolation = "auto", limit_s: float = math.inf) -> None:
        """Make a builder.

        Args:
            artifacts: the store; created if it does not exist. Several builders may share it.
            isolation: `strict`: refuse to build without the layers that keep a candidate's sources from the host.
            limit_s: time limit of a compiler, if it is less than usual for its language.
        """
        self._isolation: Isolation = isolation
        self._limit_s = limit_s
        self._artifacts = artifacts.absolute()
        self._own: dict[tuple[Language, str], Target] = {}
        self._warm: dict[str, WarmProcess] = {}
        self._stopped: set[str] = set()
        """Artifacts with compilers that reported a stop from outside."""
        self._turns: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()

    def close(self) -> None:
        """End the warm processes, which otherwise end with this object."""
        for process in self._warm.values():
            process.close()

    async def build(self, job: BuildCandidate) -> BuildReport:
        """Build for the job's target, or find the artifact built before."""
        begun = anyio.current_time()
        support = support_of(job.candidate.language, job.target.platform)
        await self._check_toolchain(support, job)
        refusal = _refuse_files(job.candidate) or support.refuse(job.candidate)
        if refusal is not None:
            return _report(refusal, begun)
        plan = support.plan_build(job.candidate, job.target, _workloads(job))
        artifact_id = content_hash(
            "artifact", job.candidate.candidate_id, job.target.fingerprint, support.contract_version, *plan.command[1:]
        )
        turn = self._turns.setdefault(artifact_id, anyio.Lock())
        async with turn:
            meta = await anyio.to_thread.run_sync(_read_whole, artifact_folder(self._artifacts, artifact_id))
            if meta is not None:
                return _report(meta.outcome, begun, cached=True)
            return await self._compile(job, support, plan, artifact_id, begun)

    async def _check_toolchain(self, support: LanguageSupport, job: BuildCandidate) -> None:
        await anyio.to_thread.run_sync(require_layers, self._isolation)
        asked, key = job.target, (job.candidate.language, job.target.arch)
        if key not in self._own:
            self._own[key] = await anyio.to_thread.run_sync(support.probe_builder, asked)
        own = self._own[key]
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
            reads = await anyio.to_thread.run_sync(readable_by, plan.command)
            guard_job = GuardJob(
                command=plan.command,
                wall_s=min(plan.timeout_s, self._limit_s),
                memory_bytes=plan.memory_bytes,
                file_bytes=plan.product_bytes,
                idle=True,
                log_path=_LOG,
                isolation=self._isolation,
                reads=reads,
                scratch=str(folder),
            )
            environment = plain_environment(TMPDIR=".", HOME=".")
            run = self._warm.setdefault(plan.warm, WarmProcess(plan.warm)).run if plan.warm else run_guarded
            guard = await run(guard_job, cwd=folder, environment=environment)
            tampered = await anyio.to_thread.run_sync(_tampered, folder, job.candidate)
            log = "" if tampered else await anyio.to_thread.run_sync(_read_log, folder / _LOG)
            if guard.exit_code != 0 and is_full(folder):
                raise EvaluatorError(f"the disk of the artifact store {str(self._artifacts)!r} is full")
            outcome = tampered or self._judge(guard, log, plan, support, job.candidate, artifact_id)
            if isinstance(outcome, Built):
                await anyio.to_thread.run_sync(_remove_strays, folder, job.candidate, plan)
                checked = await anyio.to_thread.run_sync(support.check_product, folder / plan.product, job.candidate)
                outcome = checked or outcome
            if guard.how == "ended" and artifact_id not in self._stopped:
                digest = await anyio.to_thread.run_sync(_digest, folder / plan.product)
                meta = ArtifactMeta(
                    artifact_id=artifact_id,
                    candidate_id=job.candidate.candidate_id,
                    target=job.target,
                    entry_point=job.candidate.entry_point,
                    product=plan.product,
                    product_digest=digest if isinstance(outcome, Built) else "",
                    outcome=outcome,
                )
                await anyio.to_thread.run_sync((folder / META).write_bytes, _encoder.encode(meta))
                await anyio.to_thread.run_sync(publish, folder, artifact_folder(self._artifacts, artifact_id))
            return _report(outcome, begun, cpu_s=guard.cpu_s)
        except OSError as error:
            raise EvaluatorError(f"the artifact store {str(self._artifacts)!r} failed: {error}") from error
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(remove_tree, folder)

    def _judge(
        self,
        guard: GuardReport,
        log: str,
        plan: BuildPlan,
        support: LanguageSupport,
        candidate: Candidate,
        artifact_id: str,
    ) -> Built | DidNotBuild:
        """Interpret the end of a compiler. A candidate that has it stopped twice is the cause, whatever is printed."""
        try:
            outcome = _judge(guard, log, plan, support, candidate, artifact_id)
        except _StoppedError as error:
            if artifact_id not in self._stopped:
                self._stopped.add(artifact_id)
                raise
            return DidNotBuild(reason=f"{error}; again: it is taken for the candidate's doing")
        self._stopped.discard(artifact_id)
        return outcome


def _report(outcome: Built | DidNotBuild, begun: float, *, cached: bool = False, cpu_s: float = 0.0) -> BuildReport:
    return BuildReport(outcome=outcome, cached=cached, wall_s=anyio.current_time() - begun, cpu_s=cpu_s)


def _judge(
    guard: GuardReport, log: str, plan: BuildPlan, support: LanguageSupport, candidate: Candidate, artifact_id: str
) -> Built | DidNotBuild:
    if guard.how == "timed_out":
        if guard.wanted_core and guard.cpu_s < _STARVED_SHARE * guard.wall_s:
            raise EvaluatorError(
                f"the compiler {plan.command[0]!r} was starved: it had a core for {guard.cpu_s:.2g} s of "
                f"{guard.wall_s:.2g} s, and was not done: this host is too busy to build on"
            )
        return DidNotBuild(reason=f"compiler stopped after {guard.wall_s:.0f} s")
    if guard.exit_code == 0:
        return Built(artifact_id=artifact_id, log=support.summarize_remarks(log))
    if guard.signal is not None or guard.exit_code == 127 or _STOPPED.search(log):
        how = f"signal {guard.signal}" if guard.signal is not None else f"exit code {guard.exit_code}"
        last = log.strip().splitlines()[-1:] or ["no output"]
        raise _StoppedError(f"the compiler {plan.command[0]!r} was stopped from outside ({how}): {last[0][:200]}")
    return support.explain_failure(log, candidate)


def _workloads(job: BuildCandidate) -> tuple[CalledWith, ...]:
    tensors = (job.tensors, *job.other_tensors) if job.tensors else ()
    told = zip_longest(tensors, job.modules[: len(tensors)], job.calls[: len(tensors)])
    return tuple(CalledWith(tensors=each, module=module, call=call) for each, module, call in told)


def _refuse_files(candidate: Candidate) -> DidNotBuild | None:
    names = [file.path for file in candidate.files]
    for name in names:
        parts = PurePosixPath(name).parts
        if not is_plain_name(name) or any(part.startswith(("-", ".", "@")) for part in parts):
            return DidNotBuild(reason=f"file name {name[:200]!r} cannot be used: give a plain relative path")
        if parts[0] in {META, _LOG}:
            return DidNotBuild(reason=f"file name {name!r} cannot be used: {parts[0]} is written by the evaluator")
    if clash := name_clash(names):
        return DidNotBuild(reason=f"file name {clash!r} cannot be used: it is given twice, or is a folder as well")
    return None if candidate.files else DidNotBuild(reason="the candidate has no files")


def _lay_out(folder: Path, candidate: Candidate) -> None:
    folder.mkdir(parents=True)
    for file in candidate.files:
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.text.encode("utf-8", "surrogatepass"))


def _is_changed(path: Path, text: str) -> bool:
    return not path.is_file() or path.read_bytes() != text.encode("utf-8", "surrogatepass")


def _tampered(folder: Path, candidate: Candidate) -> DidNotBuild | None:
    """Return a verdict on changes that no compiler makes; then the folder is emptied.

    A build may execute the candidate's code, which may write there: links could point to our own files.
    """
    try:
        found = foreign_entry(folder)
        if not found and (folder / META).exists():
            found = META
        what = f"it leaves in its build folder {found}" if found else ""
    except PermissionError as error:
        what = f"its files in the build folder cannot be read ({error.strerror})"
    if not what and any(_is_changed(folder / file.path, file.text) for file in candidate.files):
        what = "it changes its own files"
    if not what:
        return None
    remove_tree(folder)
    _lay_out(folder, candidate)
    return DidNotBuild(reason=f"while it is built, {what}")


def _remove_strays(folder: Path, candidate: Candidate, plan: BuildPlan) -> None:
    leaves = plan.leaves
    if leaves is None:
        return
    own = {file.path for file in candidate.files} | {_LOG}
    keep_only(folder, lambda path: path in own or re.fullmatch(leaves, path) is not None)


def publish(folder: Path, final: Path) -> None:
    """Rename a complete folder into the store; an existing artifact stays."""
    try:
        os.rename(folder, final)  # noqa: PTH104 - Path.rename would say the same less plainly
    except OSError:
        if read_meta(final) is None:
            raise


def _read_whole(folder: Path) -> ArtifactMeta | None:
    """Read the metadata of the artifact in a folder; None if there is none, or it was damaged and is removed."""
    meta = read_meta(folder)
    if meta is None or not meta.product_digest:
        return meta
    try:
        if _digest(folder / meta.product) == meta.product_digest:
            return meta
        # A crash of the host can cause that. Moved first, so that others see it completely or not at all.
        damaged = folder.with_name(f".damaged-{uuid.uuid4().hex}")
        folder.rename(damaged)
        remove_tree(damaged)
    except OSError as error:
        raise EvaluatorError(f"artifact {str(folder)!r} cannot be read: {error}") from error
    return None


def _digest(product: Path) -> str:
    try:
        with product.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    except FileNotFoundError:
        return ""


def read_meta(folder: Path) -> ArtifactMeta | None:
    """Read the metadata of the artifact in a folder; None if there is none."""
    try:
        return _decoder.decode((folder / META).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise EvaluatorError(f"artifact {str(folder)!r} cannot be read: {error}; remove it") from error


def _read_log(path: Path) -> str:
    return printable(path.read_text(encoding="utf-8", errors="replace"))
