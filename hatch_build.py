"""Compiles outlast-guard into the wheel: with the C compiler that is there, else with `ziglang` from the package index.

OUTLAST_TARGET=aarch64 cross-compiles with ziglang. The program is static, so one wheel serves glibc and musl.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
import tempfile
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ZIG = "ziglang>=0.13,<1"
TAGS = {  # architecture: the oldest release of each libc that pip has a tag for
    "x86_64": "manylinux_2_5_x86_64.manylinux1_x86_64.musllinux_1_1_x86_64",
    "aarch64": "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64",
}


def load_builder(root: str) -> ModuleType:
    """The module that builds the guard. By its path: the package is not installed yet."""
    spec = importlib.util.spec_from_file_location("outlast_guard_build", f"{root}/guard_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class GuardHook(BuildHookInterface):  # type: ignore[type-arg, misc, unused-ignore]
    """What hatchling calls."""

    def dependencies(self) -> list[str]:
        """What the build needs besides hatchling."""
        if self.target_name != "wheel":
            return []
        target = os.environ.get("OUTLAST_TARGET")
        return [ZIG] if target or load_builder(self.root).find_compiler() is None else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the guard: into the source tree for an editable install, else into the wheel."""
        if self.target_name != "wheel" or sys.platform != "linux":
            return
        builder = load_builder(self.root)
        target = os.environ.get("OUTLAST_TARGET")
        compiler = (None if target else builder.find_compiler()) or builder.zig_compiler(target or "")
        if version == "editable":
            builder.build(os.path.join(builder.DIRECTORY, builder.NAME), compiler)
            return
        output = os.path.join(tempfile.mkdtemp(), builder.NAME)
        builder.build(output, compiler)
        build_data["force_include"][output] = f"outlast/guard/{builder.NAME}"
        build_data["pure_python"] = False
        local = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{TAGS[target] if target else local}"
