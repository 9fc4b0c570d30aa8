"""JSON answers checked against the shapes in the OpenAPI document."""

import json
from typing import Any

from jsonschema import Draft202012Validator

from holdfast.console.schema.documents import document
from holdfast.views.plain_json import to_json


def check(name: str, value: Any) -> None:
    Draft202012Validator(document(name)).validate(json.loads(json.dumps(to_json(value))))
