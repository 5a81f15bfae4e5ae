"""Who acts: planner, coder, builder, evaluator and recorder, the model gateway (`llm`) and how they talk (`bus`)."""
