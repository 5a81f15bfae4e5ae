"""Terms of a call: the rules of a runner, and the place where a candidate is called on a workload."""

from __future__ import annotations

import ast

import msgspec

from evaluators.build.policy.operators import PERMITTED
from evaluators.judge.data.memory import Buffers
from evaluators.judge.reference.operators import denied_to_candidates
from evaluators.judge.reference.problem import Problem, ProblemError
from evaluators.languages.base import MODULE_RUNNERS, TORCH_RUNNERS, TRITON_RUNNERS, LanguageSupport
from evaluators.runners.base import LIBRARY_CALL, NO_KERNEL, UNNAMED
from messages.calls import CallForm
from messages.tasks import ModuleTerms, TaskRules
from messages.verdicts import LIBRARY_CALL_RULE, Rejected


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """A module's instance for one workload."""

    made: ModuleTerms
    state: tuple[str, ...] = ()
    """Names of the inputs that form its state, which come last: parameters, buffers, tensor attributes."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """Part of a `RunnerSpec`: plain data of the problem, which a candidate cannot use to cheat."""

    denied: tuple[str, ...] = ()
    """Torch operators that may not be called: `aten::mm`."""
    launches: bool = False
    """True if every call must launch a kernel."""
    module: Instance | None = None
    """For a module that holds its own state once loaded, so that another state takes another process; else None. A
    function that returns its outputs is a module without state."""
    keeps_cores: bool = False
    """True if its threads stay on the cores that the judge binds them to."""
    call: CallForm | None = None
    """Arguments and results of a call; None: one tensor after the other."""


NO_TERMS = Terms()


def terms_for(problem: Problem, rules: TaskRules, support: LanguageSupport) -> Terms:
    """Return the settings of runners of a task's candidates."""
    denied = denied_to_candidates(problem, rules) if support.runner in TORCH_RUNNERS else ()
    call = problem.call
    terms = Terms(denied=denied, keeps_cores=rules.threads > 0, call=call)
    if support.runner not in MODULE_RUNNERS:
        return msgspec.structs.replace(terms, launches=support.runner in TRITON_RUNNERS)
    if call is not None and call.calling == "destination":
        return terms
    instance = Instance(made=module_terms(problem), state=problem.state_names)
    return msgspec.structs.replace(terms, module=instance)


def module_terms(problem: Problem) -> ModuleTerms:
    """Return how candidates that are modules are made."""
    arguments = literal(tuple(problem.init_inputs))
    return ModuleTerms(arguments=arguments, parameters=problem.parameter_count, trains=problem.trains)


def broken_rule(status: int, terms: Terms) -> Rejected | None:
    """Return a rejection for the rule that a call's status reports as broken; None if there is none."""
    if terms.launches and status == NO_KERNEL:
        return Rejected(
            rule="no kernel launched",
            reason="a call launched none of its @triton.jit kernels: the work must be done by them",
        )
    index = status - LIBRARY_CALL
    if not terms.denied or not 0 <= index < len(terms.denied) + len(UNNAMED):
        return None
    name = (*terms.denied, *UNNAMED)[index]
    return Rejected(
        rule=LIBRARY_CALL_RULE,
        reason=f"it calls {name}: this task denies library calls, whether or not their error is caught. {PERMITTED} A "
        "task's author may allow more by name (--allow-library)",
    )


def literal(values: tuple[object, ...]) -> str:
    """Return values as the text of a Python literal."""
    text = repr(values)
    try:
        same = repr(ast.literal_eval(text)) == text
    except (ValueError, SyntaxError):
        same = False
    if not same:
        raise ProblemError(
            "get_init_inputs() returns something else than numbers, texts, booleans, None, and lists, tuples or dicts "
            f"of them: {text[:200]}; candidates that are modules cannot be made with it"
        )
    return text


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a workload's data for a candidate's side."""

    buffers: Buffers
    terms: Terms = NO_TERMS
    number: int = 0
    """Number of the workload among those that a runner can call."""

    @property
    def held_bytes(self) -> int:
        """Return the size of a module's instance for this workload: its parameters."""
        given = self.buffers.inputs.tensors
        count = len(self.terms.module.state) if self.terms.module is not None else 0
        return sum(tensor.nbytes for tensor in given[len(given) - count :])
