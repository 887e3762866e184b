"""Layouts of records: offsets and lengths of the items that a copybook declares, and their names in JSON.

Binary numbers with SYNCHRONIZED are aligned as Enterprise COBOL does (Language Reference, "Slack bytes within records").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from bridge.record import Naming
from bridge.record.copybook import CopybookError, Declaration, Occurs, Sign, SourcePosition, Usage
from bridge.record.picture import Picture

#: Limits of a record: bytes (those of a message of IBM MQ), and values in JSON.
MAX_LENGTH: Final = 100 * 1024 * 1024
MAX_VALUES: Final = 100_000
_MAX_BINARY_DIGITS: Final = 18
#: More bytes or values than any record has. Larger numbers are not computed.
_MANY: Final = 10**12


class AlternativeChoice(msgspec.Struct, frozen=True):
    """How a value of another field selects one of the items that share their bytes."""

    #: JSON name of the field, with dots for those in groups
    field: str
    #: value of the field as text -> JSON name of the item
    items: Mapping[str, str]
    #: item for all other values. None: they are errors
    other: str | None = None


class LayoutError(ValueError):
    """Options that do not fit the copybook. `option` is the path of the option."""

    def __init__(self, option: tuple[str, ...], sentence: str) -> None:
        super().__init__(sentence)
        self.option, self.sentence = option, sentence


class RecordItem(msgspec.Struct, eq=False):
    """An item of a record."""

    #: name in the copybook
    title: str
    #: name in JSON. None: FILLER
    name: str | None
    position: SourcePosition
    #: offset of the first occurrence from the beginning of the record
    offset: int
    #: bytes of one occurrence, without those of slack bytes that follow
    length: int = 0
    #: bytes from one occurrence to the next
    stride: int = 0
    occurs: Occurs | None = None
    #: the group that contains this item. None: the record
    parent: RecordItem | None = None
    #: subordinate items of a group. The items that share bytes are one Redefinition
    children: list[RecordItem | Redefinition] = []
    #: None: a group
    picture: Picture | None = None
    usage: Usage = "DISPLAY"
    sign: Sign = Sign()
    is_justified: bool = False
    blank_when_zero: bool = False
    #: name of the item whose bytes this item shares
    redefines: str | None = None

    @property
    def is_group(self) -> bool:
        """Whether the item has subordinate items."""
        return bool(self.children)

    @property
    def end(self) -> int:
        """The offset after the last occurrence."""
        occurs = self.occurs
        return self.offset + (self.stride * occurs.maximum if occurs is not None else self.length)

    @property
    def table(self) -> RecordItem | None:
        """The innermost item with OCCURS that contains this one, or is this one."""
        item: RecordItem | None = self
        while item is not None and item.occurs is None:
            item = item.parent
        return item

    @property
    def description(self) -> str:
        """The clauses of the item, in short."""
        if self.picture is None:
            words = {"COMP-1": ["COMP-1"], "COMP-2": ["COMP-2"]}.get(self.usage, []) if not self.is_group else ["group"]
        else:
            words = [self.picture.text] + ([self.usage] if self.usage != "DISPLAY" else [])
            if self.picture.is_signed and self.usage == "DISPLAY":
                words += ["LEADING"] * self.sign.leading + ["SEPARATE"] * self.sign.separate
        if self.occurs is not None:
            low, high = self.occurs.minimum, self.occurs.maximum
            words.append(f"OCCURS {high}" if self.occurs.depending is None else f"OCCURS {low} TO {high}")
        if self.redefines is not None:
            words.append(f"REDEFINES {self.redefines}")
        return " ".join(words)


class Redefinition(msgspec.Struct, eq=False):
    """Items that share their bytes (REDEFINES). The first one is the redefined item."""

    items: dict[str, RecordItem]
    offset: int
    length: int
    #: the item that is always used, or how a field selects one
    choice: RecordItem | AlternativeSelector
    #: whether an option makes the choice
    is_chosen: bool = False

    @property
    def first(self) -> RecordItem:
        """The redefined item."""
        return next(iter(self.items.values()))


class AlternativeSelector(msgspec.Struct, eq=False):
    """The field that selects an item, and the items by its values."""

    field: RecordItem
    items: Mapping[str, RecordItem]
    other: RecordItem | None


class RecordLayout(msgspec.Struct, eq=False):
    """The layout of a record."""

    record: RecordItem
    #: the table with OCCURS DEPENDING ON, and the field with its number of elements
    table: RecordItem | None
    count: RecordItem | None
    redefinitions: list[Redefinition]

    @property
    def maximum(self) -> int:
        """The length of the longest record in bytes."""
        return self.record.length

    @property
    def minimum(self) -> int:
        """The length of the shortest record in bytes."""
        table = self.table
        if table is None or table.occurs is None:
            return self.record.length
        return self.record.length - table.stride * (table.occurs.maximum - table.occurs.minimum)

    def items(self) -> Iterator[tuple[int, RecordItem]]:
        """Yield all items with their depths, in the order of the copybook."""
        yield from _items_of(self.record, 0)


def _items_of(item: RecordItem, depth: int) -> Iterator[tuple[int, RecordItem]]:
    yield depth, item
    for child in item.children:
        for part in child.items.values() if isinstance(child, Redefinition) else [child]:
            yield from _items_of(part, depth + 1)


def layout_of(
    records: Sequence[Declaration],
    record: str | None = None,
    names: Naming = "snake",
    redefines: Mapping[str, str | AlternativeChoice] | None = None,
) -> RecordLayout:
    """Return the layout of a record of a copybook. `record` names it, if there are several.

    `redefines` selects one of the items that share their bytes, by the JSON name of the first one. Raises CopybookError,
    LayoutError.
    """
    return _Builder(names).layout(_record_of(records, record), redefines or {})


def _record_of(records: Sequence[Declaration], record: str | None) -> Declaration:
    titles = ", ".join(record.title for record in records)
    if record is None:
        if len(records) > 1:
            why = f"the copybook has {len(records)} records: {titles} (hint: select one with the option record)"
            raise LayoutError(("record",), why)
        return records[0]
    for declaration in records:
        if declaration.name == record.upper():
            return declaration
    raise LayoutError(("record",), f"the copybook has no record {record}; it has {titles}")


def _json_name(title: str, names: Naming) -> str:
    if names == "cobol":
        return title
    if names == "snake":
        return title.lower().replace("-", "_")
    first, *others = title.lower().replace("_", "-").split("-")
    return first + "".join(word.capitalize() for word in others)


class _Builder:
    """Creates a layout from declarations."""

    def __init__(self, names: Naming) -> None:
        self._names = names
        self._redefinitions: list[Redefinition] = []
        self._tables: list[RecordItem] = []

    def layout(self, declaration: Declaration, redefines: Mapping[str, str | AlternativeChoice]) -> RecordLayout:
        """Return the layout of a record."""
        record = self._item(declaration, 0, None, "DISPLAY", Sign(), declaration.is_synchronized)
        if not record.is_group:
            # A record that is one item is an object with one member.
            item, record = (
                record,
                RecordItem(record.title, record.name, record.position, 0, record.length, record.length),
            )
            item.parent = record
            record.children = [item]
        if record.length > MAX_LENGTH:
            raise CopybookError(record.position, f"the record has {record.length:,} bytes, of {MAX_LENGTH:,} at most")
        if (values := _values(record)) > MAX_VALUES:
            raise CopybookError(record.position, f"the record has {values:,} values, of {MAX_VALUES:,} at most")
        for option, choice in redefines.items():
            redefinition = self._named(option)
            redefinition.choice = _choice(option, redefinition, choice)
            redefinition.is_chosen = True
        table = self._tables[0] if self._tables else None
        count = None if table is None else _count_of(record, self._tables)
        return RecordLayout(record, table, count, self._redefinitions)

    def _item(
        self,
        declaration: Declaration,
        offset: int,
        parent: RecordItem | None,
        usage: Usage,
        sign: Sign,
        synchronized: bool,
    ) -> RecordItem:
        """Return an item. `usage` and `sign` are those of its group."""
        item = RecordItem(declaration.title, None, declaration.position, offset, parent=parent)
        item.usage, item.sign = declaration.usage or usage, declaration.sign or sign
        item.occurs, item.redefines = declaration.occurs, declaration.redefines
        item.is_justified, item.blank_when_zero = declaration.is_justified, declaration.blank_when_zero
        # The elements of a table need a name for their array.
        if declaration.name is not None or (declaration.occurs is not None and declaration.children):
            item.name = _json_name(declaration.title, self._names)
        if declaration.children:
            self._fill_group(item, declaration, synchronized)
        else:
            item.picture = declaration.picture
            item.length = item.stride = _length(item, declaration)
        item.length = min(item.length, _MANY)
        if item.occurs is not None:
            if item.is_group:
                boundary = _boundary(declaration, usage, synchronized)
                item.stride = -(-item.length // boundary) * boundary
            if item.occurs.depending is not None:
                self._tables.append(item)
        return item

    def _fill_group(self, group: RecordItem, declaration: Declaration, synchronized: bool) -> None:
        at = declaration.position
        if declaration.is_synchronized and declaration.level != 1:
            raise CopybookError(at, f"{group.title}: a group of level 02 to 49 has no SYNCHRONIZED")
        if declaration.is_justified or declaration.blank_when_zero:
            raise CopybookError(at, f"{group.title}: a group has no JUSTIFIED and no BLANK WHEN ZERO")
        if declaration.usage in ("COMP-1", "COMP-2") and any(child.picture for child in declaration.children):
            raise CopybookError(at, f"{group.title}: items of USAGE {declaration.usage} have no PICTURE")
        end = group.offset
        for child in declaration.children:
            # Slack bytes precede the group whose first item they align.
            boundary = _boundary(child, group.usage, synchronized, first=True)
            if child.redefines is None:
                item = self._item(child, -(-end // boundary) * boundary, group, group.usage, group.sign, synchronized)
                group.children.append(item)
                end = item.end
                continue
            redefinition = self._redefined(group, child)
            offset = redefinition.offset
            if offset % boundary:
                raise CopybookError(
                    child.position, f"{child.title}: {child.redefines} is not on a boundary of {boundary} bytes (SYNC)"
                )
            item = self._item(child, offset, group, group.usage, group.sign, synchronized)
            _add_alternative(redefinition, item)
            end = max(end, item.end)
        group.length = group.stride = end - group.offset
        _check_names(group)

    def _redefined(self, group: RecordItem, child: Declaration) -> Redefinition:
        """Return the last items of a group, which an item redefines."""
        if child.occurs is not None and child.occurs.depending is not None:
            raise CopybookError(child.position, f"{child.title}: REDEFINES and DEPENDING ON exclude each other")
        last = group.children[-1] if group.children else None
        if isinstance(last, RecordItem) and last.title == child.redefines:
            if last.occurs is not None:
                raise CopybookError(child.position, f"{child.title} redefines {last.title}, which has OCCURS")
            last = Redefinition({last.name or "": last}, last.offset, last.length, last)
            group.children[-1] = last
            self._redefinitions.append(last)
        if not isinstance(last, Redefinition) or not any(item.title == child.redefines for item in last.items.values()):
            raise CopybookError(
                child.position, f"{child.title} redefines {child.redefines}, which is not the item before it"
            )
        return last

    def _named(self, option: str) -> Redefinition:
        """Return the redefinition with this path or name of its first item. Raises LayoutError."""
        by_path = {path_of(redefinition.first): redefinition for redefinition in self._redefinitions}
        matches = [redefinition for path, redefinition in by_path.items() if option in (path, path.rpartition(".")[2])]
        if len(matches) != 1:
            problem = f"{option} is the name of {len(matches)} items" if matches else f"nothing redefines {option}"
            raise LayoutError(("redefines", option), f"{problem} (redefined items: {', '.join(by_path) or 'none'})")
        return matches[0]


def path_of(item: RecordItem) -> str:
    """Return the JSON path of an item in the record, without indexes, such as address.street."""
    names = []
    above: RecordItem | None = item
    while above is not None and above.parent is not None:
        if above.name is not None:
            names.append(above.name)
        above = above.parent
    return ".".join(reversed(names)) or item.name or item.title


def _add_alternative(redefinition: Redefinition, item: RecordItem) -> None:
    name = base = item.name or "filler"
    number = 1
    while name in redefinition.items:
        number += 1
        name = f"{base}_{number}"
    redefinition.items[name] = item
    redefinition.length = max(redefinition.length, item.end - item.offset)


def _check_names(group: RecordItem) -> None:
    """Raise CopybookError if two members of a JSON object have the same name."""
    by_name: dict[str, RecordItem] = {}
    for name, item in members_of(group, alternatives=True):
        if name in by_name and by_name[name] is not item:
            raise CopybookError(
                item.position, f"{item.title} has the JSON name {name}, as {by_name[name].title} of the same group"
            )
        by_name[name] = item


def members_of(group: RecordItem, *, alternatives: bool = False) -> Iterator[tuple[str, RecordItem]]:
    """Yield the members of the JSON object of a group. The members of FILLER groups belong to the group that contains them.

    `alternatives`: also the items that share bytes.
    """
    for child in group.children:
        parts = [child] if isinstance(child, RecordItem) else list(child.items.values()) if alternatives else []
        for item in parts:
            if item.name is not None:
                yield item.name, item
            elif item.is_group:
                yield from members_of(item, alternatives=alternatives)


def _choice(
    option: str, redefinition: Redefinition, choice: str | AlternativeChoice
) -> RecordItem | AlternativeSelector:
    """Return the choice that an option specifies. Raises LayoutError."""

    def item_of(name: str, *at: str) -> RecordItem:
        if name not in redefinition.items:
            items = ", ".join(redefinition.items)
            raise LayoutError(("redefines", option, *at), f"{name} is not one of the items {items}")
        return redefinition.items[name]

    if isinstance(choice, str):
        return item_of(choice)
    first = redefinition.first
    field = _field_in_scope(first, choice.field)
    if field is None or field.is_group or field.occurs is not None:
        problem = "is not a field of the record" if field is None else "is not a single value"
        raise LayoutError(("redefines", option, "field"), f"{choice.field} {problem}")
    if field.table is not None and field.table is not first.table:
        raise LayoutError(("redefines", option, "field"), f"{choice.field} belongs to another table")
    items = {value: item_of(name, "items", value) for value, name in choice.items.items()}
    return AlternativeSelector(field, items, None if choice.other is None else item_of(choice.other, "other"))


def _field_in_scope(item: RecordItem, path: str) -> RecordItem | None:
    """Return the item of a path that begins in the group of an item, or in a group that contains it."""
    group = item.parent
    while group is not None:
        record_item: RecordItem | None = group
        for name in path.split("."):
            record_item = None if record_item is None else dict(members_of(record_item)).get(name)
        if record_item is not None:
            return record_item
        group = group.parent
    return None


def _count_of(record: RecordItem, tables: Sequence[RecordItem]) -> RecordItem:
    """Return the field with the number of elements of the table with OCCURS DEPENDING ON. Raises CopybookError."""
    table = tables[0]
    occurs = table.occurs
    assert occurs is not None
    at = tables[-1].position
    if len(tables) > 1:
        raise CopybookError(at, "a record has one OCCURS DEPENDING ON at most")
    part: RecordItem = table
    while part.parent is not None:
        if part.parent.children[-1] is not part or part.parent.occurs is not None:
            raise CopybookError(at, f"{table.title}: OCCURS DEPENDING ON belongs to the last item of the record")
        part = part.parent
    counts = [item for _, item in _items_of(record, 0) if item.title == occurs.depending]
    if len(counts) != 1:
        problem = "is not an item of the record" if not counts else "is the name of several items"
        raise CopybookError(at, f"{table.title}: {occurs.depending} {problem}")
    count = counts[0]
    picture = count.picture
    if picture is None or not picture.is_numeric or picture.scale or count.table is not None:
        raise CopybookError(at, f"{table.title}: {occurs.depending} is not a single whole number")
    if count.offset >= table.offset or count not in (item for _, item in _paths(record)):
        raise CopybookError(at, f"{table.title}: {occurs.depending} is not at a fixed place before the table")
    return count


def _paths(group: RecordItem) -> Iterator[tuple[str, RecordItem]]:
    """Yield all items that no redefinition contains."""
    for name, item in members_of(group):
        yield name, item
        yield from _paths(item)


def _values(item: RecordItem) -> int:
    number = 1 if not item.is_group else 0
    for child in item.children:
        number += max(map(_values, child.items.values())) if isinstance(child, Redefinition) else _values(child)
    return min(number * (item.occurs.maximum if item.occurs is not None else 1), _MANY)


# Elementary items ----------------------------------------------------------------------------------------------------


def _binary_length(digits: int) -> int:
    return 2 if digits <= 4 else 4 if digits <= 9 else 8


def _length(item: RecordItem, declaration: Declaration) -> int:
    """Return the bytes of an elementary item. Raises CopybookError for clauses that exclude each other."""
    picture, usage, at, title = item.picture, item.usage, item.position, item.title

    def refuse(sentence: str) -> CopybookError:
        return CopybookError(at, f"{title}: {sentence}")

    if usage in ("COMP-1", "COMP-2"):
        if picture is not None:
            raise refuse(f"an item of USAGE {usage} has no PICTURE")
        return 4 if usage == "COMP-1" else 8
    if picture is None:
        raise refuse("an item without PICTURE has subordinate items")
    if declaration.sign is not None and not (picture.is_signed and usage == "DISPLAY"):
        raise refuse("SIGN belongs to a number of USAGE DISPLAY with S in its PICTURE")
    if item.is_justified and (picture.is_numeric or picture.is_edited):
        raise refuse("JUSTIFIED belongs to text that is not edited")
    if item.blank_when_zero and not (usage == "DISPLAY" and "X" not in picture.text.upper()):
        raise refuse("BLANK WHEN ZERO belongs to a number of USAGE DISPLAY")
    if usage == "DISPLAY":
        return picture.length + (picture.is_signed and item.sign.separate)
    if not picture.is_numeric:
        raise refuse(f"USAGE {usage} needs a PICTURE of digits, not {picture.text}")
    if usage == "COMP-3":
        return picture.digits // 2 + 1
    if picture.digits > _MAX_BINARY_DIGITS:
        raise refuse(f"a binary number has {_MAX_BINARY_DIGITS} digits at most")
    return _binary_length(picture.digits)


def _boundary(declaration: Declaration, usage: Usage, synchronized: bool, *, first: bool = False) -> int:
    """Return the largest boundary on which an item of a group is aligned, or with `first` that of its first item."""
    usage = declaration.usage or usage
    if declaration.children:
        children = [child for child in declaration.children if child.redefines is None or not first]
        boundaries = (_boundary(child, usage, synchronized, first=first) for child in children)
        return next(boundaries, 1) if first else max(boundaries, default=1)
    if not (synchronized or declaration.is_synchronized):
        return 1
    if usage in ("COMP", "COMP-5") and declaration.picture is not None:
        return 2 if declaration.picture.digits <= 4 else 4
    return {"COMP-1": 4, "COMP-2": 8}.get(usage, 1)
