"""True if a task can tell a kernel from a trick: answers that compute nothing and pass, tensors that do nothing."""
