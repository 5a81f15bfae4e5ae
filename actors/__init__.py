"""The actors (planner, coder, builder, evaluator and recorder), the model gateway (`llm`) and messaging (`bus`)."""
