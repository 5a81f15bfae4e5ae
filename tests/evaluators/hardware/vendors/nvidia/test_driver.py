"""What is said where the driver lacks something: no GPU is needed for that."""

from __future__ import annotations

from typing import NoReturn

import pytest

from evaluators.hardware.vendors.nvidia.driver import Context, DriverError, Hold


class Refusing(Context):
    """A driver of which every call fails."""

    def __init__(self, code: int) -> None:
        self.code = code

    def call(self, name: str, *_arguments: object) -> NoReturn:
        raise DriverError(name, self.code, "CUDA_ERROR")


@pytest.mark.parametrize(
    ("code", "said"), [(221, "libnvidia-ptxjitcompiler.so.1 is not there"), (2, "cuModuleLoadData")]
)
def test_a_driver_without_its_compiler_is_told_what_it_lacks(code: int, said: str) -> None:
    with pytest.raises(DriverError, match=said):
        Hold(Refusing(code))
