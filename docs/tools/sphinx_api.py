"""The API reference: every public name of a room, from its docstring.

    .. room:: graphdiffusion.solvers       the docstrings of all public names of a module
    .. names:: graphdiffusion              a table of its names, each linked to the room that holds it

Public are the names of ``__all__`` and the classes of the registry that lives in the room; of a module
without ``__all__`` those that it defines. A name without a docstring is a warning, and so an error of the
build.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from types import ModuleType
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.nodes import make_refnode

log = logging.getLogger(__name__)
ROOMS = (
    "data", "rewiring", "graph", "partition", "ops", "calculus", "diffusivity", "equation", "solvers",
    "nn", "training", "ensemble", "estimator", "experiments", "report", "configs", "plugins", "registry",
    "options", "errors",
)  # fmt: skip


def public_names(module: ModuleType) -> list[str]:
    """The public names of a module, those of its registry last."""
    from graphdiffusion.registry import registries

    if module.__name__ == "graphdiffusion":
        return [name for name in dir(module) if name != "__version__"]
    own = getattr(module, "__all__", None)
    if own is None:
        own = [
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
            and (inspect.isclass(value) or inspect.isfunction(value))
        ]  # fmt: skip
    registered = [
        cls.__name__
        for registry in registries().values()
        if registry.home == module.__name__
        for cls in registry.classes().values()
        if cls.__module__.startswith("graphdiffusion.")
    ]
    return list(dict.fromkeys([*own, *sorted(registered)]))


def home_of(value: Any, name: str) -> str:
    """The documented name of a public object of the root."""
    for room in ROOMS:
        module = import_module(f"graphdiffusion.{room}")
        if name in public_names(module) and getattr(module, name) is value:
            return f"graphdiffusion.{room}.{name}"
    raise LookupError(f"{name} is public, but in no room of the API reference")


class Room(Directive):
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        module = import_module(self.arguments[0])
        about = inspect.cleandoc(module.__doc__ or "").splitlines()
        lines = [f".. py:module:: {module.__name__}", "", *about, ""]
        for name in public_names(module):
            lines += [*self._entry(module, name), ""]
        parent = nodes.section()
        parent.document = self.state.document
        content = StringList(lines, source=f"{module.__name__} (API)")
        self.state.nested_parse(content, 0, parent)
        return parent.children

    def _entry(self, module: ModuleType, name: str) -> list[str]:
        value, full = getattr(module, name), f"{module.__name__}.{name}"
        if inspect.isclass(value) or inspect.isfunction(value):
            if not value.__doc__:
                log.warning("%s is public and has no docstring", full, type="api")
            if inspect.isclass(value):
                return [f".. autoclass:: {full}", "   :members:"]
            return [f".. autofunction:: {full}"]
        kind = type(value).__name__
        shown = [f".. py:data:: {name}"] + [f"   :type: {kind}"] * (kind == "Registry")
        return [*shown, "", f"   {_words_of(value)}"]


def _words_of(value: Any) -> str:
    """What a constant or an alias of types is."""
    if type(value).__name__ == "Registry":
        return f"The registry of classes of the kind {value.kind}: ``{', '.join(sorted(value.names()))}``."
    text = repr(value).replace("typing.", "")
    return f"``{text}``" if len(text) < 300 else f"A {type(value).__name__} of {len(value)}."


class Names(Directive):
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        from graphdiffusion.docstrings import summary_of

        module = import_module(self.arguments[0])
        lines = [".. list-table::", "   :widths: 30 70", ""]
        for name in public_names(module):
            value = getattr(module, name)
            lines += [f"   * - :py:obj:`{name} <{home_of(value, name)}>`", f"     - {summary_of(value)}"]
        parent = nodes.section()
        parent.document = self.state.document
        self.state.nested_parse(StringList(lines, source=f"{module.__name__} (names)"), 0, parent)
        return parent.children


def resolve(app: Sphinx, env: Any, node: nodes.Element, content: nodes.Node) -> nodes.Node | None:
    """Link a name to the one documented object that ends with it: docstrings leave out the room."""
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"]
    last = target.rpartition(".")[2]
    inner = () if "." in target else ("method", "attribute", "property")
    found = {
        (entry.docname, entry.node_id, name)
        for name, entry in env.get_domain("py").objects.items()
        if name.rpartition(".")[2] == last and entry.objtype not in inner
    }
    places = sorted(found, key=lambda own: not own[2].endswith(target))
    if len({own[2] for own in places}) == 1 or (places and places[0][2].endswith(f".{target}")):
        docname, anchor, name = places[0]
        return make_refnode(app.builder, node["refdoc"], docname, anchor, content, name)
    return content if exists(target, node.get("py:module"), node.get("py:class")) else None


def exists(target: str, module: str | None, cls: str | None) -> bool:
    """Whether there is such an object, though no page is about it: it is named, and not linked."""
    for name in (target, f"{module}.{target}", f"{module}.{cls}.{target}"):
        parts = name.split(".")
        for k in range(len(parts), 0, -1):
            if parts[0] != "graphdiffusion":
                break
            try:
                value: Any = import_module(".".join(parts[:k]))
                for part in parts[k:]:
                    value = getattr(value, part)
                return True
            except (ImportError, AttributeError):
                continue
    return False


ANNOTATED = re.compile(
    r"~?(?:typing|types)\.Annotated\[(.+?), "
    r"~?graphdiffusion\.options\.(?:Bounds|Named)\((?:[^()]|\([^()]*\))*\)\]"
)


def shorten(
    app: Sphinx, what: str, name: str, value: Any, options: Any, signature: str | None, returns: Any
) -> Any:
    """Signatures without the bounds of options and the addresses of objects: types are enough."""
    if signature is None:
        return None
    return re.sub(r"<[^<>]*>", "...", ANNOTATED.sub(r"\1", signature)), returns


def leave_out(app: Sphinx, what: str, name: str, value: Any, skip: bool, options: Any) -> bool | None:
    """Methods that scikit-learn adds are left to its own documentation."""
    return True if name.startswith("set_") and name.endswith("_request") else None


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("room", Room)
    app.add_directive("names", Names)
    app.connect("autodoc-process-signature", shorten)
    app.connect("autodoc-skip-member", leave_out)
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
