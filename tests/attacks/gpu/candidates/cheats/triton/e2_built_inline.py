# class: E2,F17
# mechanism: has torch build C++ that calls at::mean
# expect: denied

from torch.utils import cpp_extension

SOURCE = "torch::Tensor run(torch::Tensor x, torch::Tensor w) { return x * w / (1 + x.abs().mean(-1, true)); }"
built = cpp_extension.load_inline("built_inline", cpp_sources=[SOURCE], functions=["run"])


def ksearch_run(x, weight, y):
    launch_something(x)
    y.copy_(built.run(x, weight))
