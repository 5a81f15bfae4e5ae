"""What a candidate is worth: tasks, languages, builds, the check and the stopwatch."""
