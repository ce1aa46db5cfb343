"""What Configs, Secrets and the mounts that name them must keep: keys that are file names, paths that stay in the instance's own
directory. Called through RULES in this package, and for templates by workload.py.
"""

from __future__ import annotations

import re
from typing import Final

from fairlead.model.kinds.intent import Config, FileMount, Secret
from fairlead.model.report import Report, shown

MOUNTS_MAX: Final = 32
PATH_MAX: Final = 256

_FILE_NAME: Final = re.compile(r"(?!\.{1,2}$)[-._A-Za-z0-9]{1,253}")


def check_data(report: Report, new: Config | Secret, old: Config | Secret | None) -> None:
    for name in new.spec.data:
        if not _FILE_NAME.fullmatch(name):
            report.add(f"spec.data.{name[:80]}", "must be letters, digits, '-', '_' and '.', as it becomes the name of a file")


def check_mounts(report: Report, path: str, files: tuple[FileMount, ...]) -> None:
    if len(files) > MOUNTS_MAX:
        report.add(path, f"may have {MOUNTS_MAX} mounts, has {len(files)}")
    report.unique(path, [mount.path.strip("/") for mount in files], "path")
    for index, mount in enumerate(files[:MOUNTS_MAX]):
        here = f"{path}[{index}]"
        steps = mount.path.split("/")
        if not mount.path or len(mount.path) > PATH_MAX or not all(_FILE_NAME.fullmatch(step) for step in steps):
            message = f"must be a path below the instance's directory, such as etc/app, got {shown(mount.path)}"
            report.add(f"{here}.path", message)
        if bool(mount.config) == bool(mount.secret):
            report.add(here, "needs exactly one of config and secret")
        for field, name in (("config", mount.config), ("secret", mount.secret)):
            if name:
                report.subdomain(f"{here}.{field}", name)
