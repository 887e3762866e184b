"""The JSON Schema of the configuration file (draft 2020-12), for YAML completion and validation in editors."""

import ast
import functools
import inspect
import itertools
import re
import sys
from typing import Any, get_args

from pydantic import ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from bridge.config.document import MappingFile
from bridge.config.mapping import PayloadType, SplitConfig, TextPayload
from bridge.config.models import Configuration
from bridge.config.values import Section

# Tags of a union -> the tag with the condition, and the condition that selects it.
_CONDITIONS: dict[frozenset[str], tuple[str, JsonSchemaValue]] = {
    frozenset({"embedded", "ibm"}): ("ibm", {"required": ["type"], "properties": {"type": {"const": "ibm"}}}),
    frozenset({"to-mq", "to-mqtt"}): ("to-mq", {"properties": {"from": {"required": ["mqtt"]}}, "required": ["from"]}),
    frozenset({"one", "each"}): ("each", {"type": "object"}),
    frozenset({"text", "typed"}): ("typed", {"type": "object"}),
}
_NOTHING = {"type": "null"}


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the configuration file.

    The schema cannot express semantic checks, such as references to links that do not exist.
    """
    return _schema(Configuration, "Configuration of mqbridge")


def mapping_file_schema() -> dict[str, Any]:
    """Return the JSON Schema of the mapping files named under `mappings`."""
    return _schema(MappingFile, "Mappings of mqbridge")


def _schema(model: type[Section], title: str) -> dict[str, Any]:
    schema = model.model_json_schema(schema_generator=_Generator)
    return {"$schema": _Generator.schema_dialect, **schema, "title": title}


class _Generator(GenerateJsonSchema):
    """pydantic's generator, extended with the descriptions and custom validators of the models."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        object_schema = super().model_schema(schema)
        model: type[Section] = schema["cls"]
        object_schema.pop("title", None)
        docstrings = _docstrings(model)
        for name, field in model.model_fields.items():
            key = field.alias or name
            described = object_schema["properties"][key]
            described.pop("title", None)
            if _NOTHING not in described.get("anyOf", ()) and _may_be_empty(model, key):
                described = {"anyOf": [described, _NOTHING]}
            object_schema["properties"][key] = (
                {**described, "description": docstrings[name]} if name in docstrings else described
            )
        if model is Configuration:
            kinds = object_schema["properties"]["mappings"]["anyOf"]  # by name, or null
            kinds.append({"type": "array", "items": {"anyOf": [{"type": "string", "minLength": 1}, kinds[0]]}})
        if model is TextPayload:
            # Its own options before those of records, which it inherits.
            own = [field.alias or name for name, field in model.model_fields.items() if name in model.__annotations__]
            object_schema["properties"] = {
                key: object_schema["properties"][key] for key in dict.fromkeys([*own, *object_schema["properties"]])
            }
            return {"anyOf": [{"enum": list(get_args(PayloadType))}, object_schema]}
        if model is SplitConfig:
            return {"anyOf": [object_schema["properties"]["path"], object_schema]}
        return object_schema

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        inner_schema = self.generate_inner(schema["schema"])
        return (
            {**inner_schema, "anyOf": [*inner_schema["anyOf"], _NOTHING]}
            if "anyOf" in inner_schema
            else {"anyOf": [inner_schema, _NOTHING]}
        )

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        value_schema = super().default_schema(schema)
        if value_schema.get("default", ...) is None:  # editors would insert it
            del value_schema["default"]
        return value_schema

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        schemas = {key: self.generate_inner(schema[key]) for key in ("keys_schema", "values_schema")}
        return {
            "type": "object",
            "propertyNames": schemas["keys_schema"],
            "additionalProperties": schemas["values_schema"],
        }

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchemaValue:
        # Not oneOf: editors would then only report that no alternative matches.
        schemas = {str(tag): self.generate_inner(choice) for tag, choice in schema["choices"].items()}
        if frozenset(schemas) not in _CONDITIONS:
            kinds = [{"if": {"properties": {"method": {"const": tag}}}, "then": kind} for tag, kind in schemas.items()]
            return {
                "type": "object",
                "required": ["method"],
                "properties": {"method": {"enum": [*schemas]}},
                "allOf": kinds,
            }
        tag, condition = _CONDITIONS[frozenset(schemas)]
        (other,) = schemas.keys() - {tag}
        return {"if": condition, "then": schemas[tag], "else": schemas[other]}


def _may_be_empty(model: type[Section], key: str) -> bool:
    """Return whether an empty heading (null) is accepted, although null is not a value of the field's type."""
    try:
        model.model_validate({key: None})
    except ValidationError as error:
        return all(detail["loc"][:1] != (key,) for detail in error.errors())
    return True


def _docstrings(model: type[Section]) -> dict[str, str]:
    """Return the docstring below each attribute in the source of `model`, by attribute name, as one line."""
    texts: dict[str, str] = {}
    for owner in reversed([section for section in model.__mro__ if issubclass(section, Section)]):
        texts |= _docstrings_by_class(owner.__module__)[owner.__name__]
    return texts


@functools.cache
def _docstrings_by_class(module: str) -> dict[str, dict[str, str]]:
    """Return the docstrings of the attributes of each class of a module, because inspect parses a module for each class."""
    texts: dict[str, dict[str, str]] = {}
    for definition in ast.parse(inspect.getsource(sys.modules[module])).body:
        if isinstance(definition, ast.ClassDef):
            own = texts[definition.name] = {}
            for attribute, text in itertools.pairwise(definition.body):
                match attribute, text:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                        own[name] = re.sub(r"\bNone\b", "null", " ".join(words.split()))
    return texts
