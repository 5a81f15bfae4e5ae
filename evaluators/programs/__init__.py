"""Tasks that are plain Python programs: a file to improve, and a file with `evaluate(path)` that scores it.

- `load_program(name_or_path, evaluator, …) -> TaskSpec`, `describe_program(task) -> TaskDescription` (`task`)
- `ProgramBuilder`, `ProgramEvaluator` (`evaluator`): siblings of `evaluators.build.builder` and `evaluators.local`

The evaluator is the user's own code, and is trusted; programs run in processes of their own (`zygote`, `warden`,
`scoring`). No torch here.
"""
