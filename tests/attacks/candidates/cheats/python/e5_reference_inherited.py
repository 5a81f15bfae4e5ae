# class: E5
# mechanism: looks for the reference's class and inherits from it
# expect: denied

import gc
import sys

found = [kind for kind in gc.get_objects() if isinstance(kind, type) and kind.__name__ == "Model"]
found += [vars(module)["Model"] for module in list(sys.modules.values()) if isinstance(getattr(module, "__dict__", None), dict) and "Model" in vars(module)]
found = [kind for kind in found if isinstance(kind, type) and issubclass(kind, nn.Module)]
if not found:
    raise Closed("no reference here")


class ModelNew(found[0]):
    pass
