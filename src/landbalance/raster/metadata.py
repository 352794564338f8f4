"""Metadata of products: XML and numbers, checked."""

from typing import Any
from xml.etree import ElementTree

from landbalance.errors import UserError


def parsed(text: bytes, where: str) -> ElementTree.Element:
    """Return the root of an XML document.

    Raises
    ------
    UserError
        When it is damaged, or has a document type: no product has one, and entities that swell hide there.
    """
    try:
        if b"<!DOCTYPE" in text:
            raise ElementTree.ParseError("it has a document type")
        return ElementTree.fromstring(text)  # noqa: S314, there are no entities
    except ElementTree.ParseError as error:
        raise UserError(f"{where}: the product's metadata are damaged ({error}). Replace the product.") from error


def number(text: Any, tag: str, where: str) -> float:
    """Return the number that `text` is; anything else is a `UserError` that names its `tag`."""
    try:
        return float(text)
    except (TypeError, ValueError):
        raise UserError(f"{where}: {tag} is {text!r}, and a number is wanted. Replace the product.") from None
