"""What all settings have in common: closed, frozen, strict about types."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints


class Settings(BaseModel):
    """A closed section of the configuration: an unknown key is an error, and so is a quoted number."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, protected_namespaces=())


Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=64)]
"""A name that also becomes a file name: letters, digits, dot, underscore, hyphen."""

Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
Positive = Annotated[int, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]

PATTERNS_IN_WORDS = {
    r"^[A-Za-z0-9][A-Za-z0-9._-]*$": "a name (letters, digits, dot, underscore, hyphen)",
    r"^#[0-9a-fA-F]{6}$": "a colour, '#rrggbb'",
    r"^(https?|s3|gs|file)://": "an address (https://, http://, s3://, gs:// or file://)",
    r"^[0-9a-f]+$": "hexadecimal digits",
    r"^[A-Za-z0-9._-]+==[A-Za-z0-9.+!_-]+$": "name==version",
}
"""What the patterns of texts mean, for messages and the reference page."""
