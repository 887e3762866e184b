"""The `record` payload of mappings and pipelines: a copybook, and how records are converted to JSON documents."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PrivateAttr, Tag, model_validator
from pydantic.types import Discriminator

from bridge.config import values
from bridge.config.values import Section, Truth
from bridge.record import Naming, Rounding
from bridge.wire.mq.ccsid import character_set

if TYPE_CHECKING:  # few configurations have records
    from bridge.record.copybook import CopybookFiles
    from bridge.record.field import CodecOptions
    from bridge.record.layout import AlternativeChoice, RecordLayout

EncodingWord = Literal["normal", "reversed", "s390", "x86"]
_ENCODINGS: dict[str, int] = {"normal": 273, "reversed": 546, "s390": 785, "x86": 530}
"""Words -> MQENC_NORMAL, MQENC_REVERSED, MQENC_S390, and the Encoding of COBOL on x86 (packed numbers not reversed)."""
_FieldName = Annotated[str, values.text(r"[^\x00]{1,255}", "a field of the record such as customer.name")]


def _choice_kind(data: Any) -> str:
    return "each" if isinstance(data, Mapping | RedefinesConfig) else "one"


def _keys_as_text(value: object) -> object:
    return {str(key): name for key, name in value.items()} if isinstance(value, Mapping) else value


class RedefinesConfig(Section):
    """How a field selects one of the items that share their bytes (REDEFINES)."""

    field: _FieldName
    """Name of the field in JSON: of the same group, or of a group that contains it."""
    items: Annotated[
        dict[str, _FieldName], values.ValueKind(_keys_as_text, schema={"additionalProperties": {"type": "string"}})
    ] = Field(default_factory=dict)
    """Value of the field -> name of the item in JSON. FILLER is `filler`."""
    other: _FieldName | None = None
    """The item for all other values. None: they are errors."""

    @property
    def choice(self) -> "AlternativeChoice":
        """The choice for the layout."""
        from bridge.record.layout import AlternativeChoice

        return AlternativeChoice(self.field, self.items, self.other)


class RecordOptions(Section):
    """A copybook, and how its records are converted."""

    OF_RECORD: ClassVar[tuple[str, ...]] = (
        "copybook",
        "record",
        "names",
        "encoding",
        "numbers",
        "redefines",
        "default",
        "unknown",
        "truncate",
        "round",
        "binary",
        "signs",
    )
    """The options that only records have."""

    OF_WRITING: ClassVar[tuple[str, ...]] = ("default", "round", "signs", "truncate", "unknown")
    """The options that only written records have."""

    copybook: values.FilePath | None = None
    """Only with `record`: file with the copybook, in fixed or free format. COPY statements name files in its directory."""
    record: Annotated[str, values.text(r"[A-Za-z0-9_-]{1,60}", "the name of a level 01 item")] | None = None
    """Only with `record`: the level 01 item of the copybook. None: its only one."""
    names: Annotated[Naming, values.choice(Naming)] = "snake"
    """Only with `record`: names in JSON. STOCK-LEVEL is `stock_level` (snake), `stockLevel` (camel) or `STOCK-LEVEL`
    (cobol)."""
    encoding: (
        Annotated[int | EncodingWord, values.one_of(values.integer(1, 4095), values.choice(EncodingWord))] | None
    ) = None
    """Only with `record`: the Encoding (MQENC) of its numbers in MQ: byte orders, and IBM or IEEE floating point. `s390` is
    785 (z/OS), `normal` 273 (AIX, IBM i), `reversed` 546 (MQENC_NATIVE on x86), `x86` 530: as 546, but without reversed
    packed numbers, as COBOL compilers write. None: that of the message or, for a mapping to MQ, `s390` if the CCSID is an
    EBCDIC one, otherwise `x86`."""
    numbers: Annotated[Literal["number", "string"], values.choice(Literal["number", "string"])] = "number"
    """Only with `record`: `string` writes numbers with decimals, and whole numbers of more than 15 digits, as JSON strings,
    for programs that would lose digits. Both are read."""
    redefines: dict[
        _FieldName,
        Annotated[
            Annotated[_FieldName, Tag("one")] | Annotated[RedefinesConfig, Tag("each")], Discriminator(_choice_kind)
        ],
    ] = Field(default_factory=dict)
    """Only with `record`: name of an item that others redefine -> the one of these items that is always used, or how the
    value of a field selects it. Default: the redefined item itself."""
    default: dict[
        _FieldName, Annotated[Any, values.ValueKind(lambda value: value, schema={"type": ["string", "number"]})]
    ] = Field(default_factory=dict)
    """Only with `record`, in a mapping to MQ: values of fields that are missing or null in the JSON document, such as
    `customer.country: DE`. Without a default, a missing field is an error."""
    unknown: Annotated[Literal["error", "ignore"], values.choice(Literal["error", "ignore"])] = "error"
    """Only with `record`, in a mapping to MQ: what happens if the JSON document has a member that is not in the record."""
    truncate: Truth = False
    """Only with `record`, in a mapping to MQ: cut text that is too long. If false, it is an error."""
    round: Annotated[Rounding, values.choice(Rounding)] | None = None
    """Only with `record`, in a mapping to MQ: round numbers with too many decimals. None: they are errors."""
    binary: Annotated[Literal["picture", "full"], values.choice(Literal["picture", "full"])] = "picture"
    """Only with `record`: the values of binary numbers (COMP): as many digits as the PICTURE has, or the full range of the
    bytes, as with the compiler option TRUNC(BIN). COMP-5 always has the full range."""
    signs: Annotated[Literal["ebcdic", "ascii"], values.choice(Literal["ebcdic", "ascii"])] = "ebcdic"
    """Only with `record`, in a mapping to MQ: the signs of zoned numbers that are written in an ASCII character set: `{`, `A`
    to `R` and `}`, as converted from EBCDIC, or digits and `p` to `y`, as compilers on ASCII machines write. Both are
    read."""
    _files: Any = PrivateAttr(default=None)

    def first_specified(self, options: Iterable[str]) -> str | None:
        """Return the first of these options that is not at its default, or None."""
        fields = type(self).model_fields
        return next(
            (name for name in options if getattr(self, name) != fields[name].get_default(call_default_factory=True)),
            None,
        )

    def read_copybook(self) -> None:
        """Read the copybook, so that a reload notices a changed file. Errors are raised by `layout`."""
        from bridge.record.copybook import CopybookError, parse

        with suppress(OSError, CopybookError):
            parse(self.files)

    @property
    def files(self) -> "CopybookFiles":
        """The copybook and the files that it copies."""
        from bridge.record.copybook import CopybookFiles

        assert self.copybook is not None
        if self._files is None:
            self._files = CopybookFiles(self.copybook)
        files: CopybookFiles = self._files
        return files

    def layout(self) -> "RecordLayout":
        """Return the layout of the record. Raises OSError, CopybookError, LayoutError."""
        from bridge.record.copybook import parse
        from bridge.record.layout import layout_of

        choices = {
            name: choice if isinstance(choice, str) else choice.choice for name, choice in self.redefines.items()
        }
        return layout_of(parse(self.files), self.record, self.names, choices)

    @property
    def codec_options(self) -> "CodecOptions":
        """How values are converted."""
        from bridge.record.field import CodecOptions

        return CodecOptions(
            numbers=self.numbers,
            truncate=self.truncate,
            round=self.round,
            binary=self.binary,
            ascii_signs=self.signs,
            default=self.default,
            ignore_unknown=self.unknown == "ignore",
        )

    @property
    def encoding_number(self) -> int | None:
        """The Encoding as a number, or None for that of the message."""
        return _ENCODINGS[self.encoding] if isinstance(self.encoding, str) else self.encoding

    def encoding_for(self, ccsid: int) -> int:
        """Return the Encoding of records that are written in a CCSID."""
        if self.encoding_number is not None:
            return self.encoding_number
        characters = character_set(ccsid)
        return _ENCODINGS["s390" if characters is not None and characters.is_ebcdic else "x86"]


class RecordConfig(RecordOptions):
    """A copybook, and how a pipeline converts its records."""

    ccsid: Annotated[int, values.integer(1, 65535)] | None = None
    """CCSID of the text. None: that of the message, or 1208 (UTF-8) for records that are written or without one."""

    @model_validator(mode="after")
    def _has_copybook(self) -> Self:
        if self.copybook is None:
            raise values.refusal("a copybook (the file that describes the record)", "copybook")
        return self


class RecordPayloadConfig(RecordConfig):
    """`payload` of a pipeline in its long form: the source has COBOL records."""

    type: Annotated[Literal["record"], values.choice(Literal["record"])] = "record"
    """`record`: the column `payload` contains the fields of the record, with types."""

    @model_validator(mode="after")
    def _reads(self) -> Self:
        if (option := self.first_specified(self.OF_WRITING)) is not None:
            raise values.refusal(f"no {option}, because the pipeline reads these records", option)
        return self
