"""Turns what matplotlib draws into SVG for a page: real text, presentation attributes, colours as classes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from xml.etree import ElementTree

# matplotlib before 3.10 writes these as one declaration.
_FONT = re.compile(r"(?:(?P<style>[a-z]+) )?(?:(?P<weight>\d+) )?(?P<size>[\d.]+px) ")


def simplify(root: ElementTree.Element, name: str, colors: Mapping[str, str]) -> None:
    """Drop metadata and matplotlib's style sheet, which would reach the whole page, and make ids the figure's own."""
    for parent in list(root.iter()):
        for child in list(parent):
            if _local(child.tag) in ("metadata", "style"):
                parent.remove(child)
    used = {
        value.strip("#").removeprefix("url(#").rstrip(")")
        for element in root.iter()
        for key, value in [*element.attrib.items(), *_declarations(element)]
        if value.startswith(("#", "url(#")) and (_local(key) == "href" or value.startswith("url("))
    }
    for element in root.iter():
        element.tag = _local(element.tag)
        attributes = {_local(key): value for key, value in element.attrib.items() if _local(key) != "style"}
        attributes |= _presentation(dict(_declarations(element)))
        if attributes.get("id") in used:
            attributes["id"] = f"{name}-{attributes['id']}"
        else:
            attributes.pop("id", None)
        for key in ("href", "clip-path", "fill"):
            if "#" in attributes.get(key, "") and attributes[key].startswith(("#", "url(")):
                reference = attributes[key].removeprefix("url(").strip("#)")
                if reference in used:
                    target = f"#{name}-{reference}"
                    attributes[key] = f"url({target})" if attributes[key].startswith("url(") else target
        classes = [
            f"{part}-{role}"
            for part in ("fill", "stroke")
            for role, color in colors.items()
            if attributes.get(part) == color
        ]
        if classes:
            attributes["class"] = " ".join(classes)
        element.attrib.clear()
        element.attrib.update(attributes)
        element.tail = "\n"
        if element.text and not element.text.strip():
            element.text = None
    root.tail = None


def _declarations(element: ElementTree.Element) -> list[tuple[str, str]]:
    pairs = (part.split(":", 1) for part in element.attrib.get("style", "").split(";") if ":" in part)
    return [(key.strip(), value.strip()) for key, value in pairs]


def _presentation(style: dict[str, str]) -> dict[str, str]:
    """Turn style declarations into attributes, which also work in pages that allow no inline style."""
    if found := _FONT.match(style.pop("font", "")):
        style |= {f"font-{key}": value for key, value in found.groupdict().items() if value}
    style.pop("font-family", None)
    return style


def _local(name: str) -> str:
    return name.rsplit("}", 1)[-1]
