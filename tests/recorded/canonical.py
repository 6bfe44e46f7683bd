"""The normal form of records: equal texts mean equal arithmetic, in the same order of operands."""

from legacy_opt.recorded.records import Program


def canonical(record):
    """Returns a text of a record, without what its results do not need.

    Nodes are numbered depth first, operands before the operation, from the results in the order of
    their names; equal nodes are one. Scalars that no program reads are left out of `before`.
    """
    programs = [each for group in record.groups for each in group.programs]
    read = {node.detail[1] for each in programs for node in each.nodes if is_scalar(node)}
    before = {name: i for name, i in record.before.results.items() if name in read}
    groups = []
    for group in record.groups:
        parts = {name: program_text(value) for name, value in group._asdict().items()}
        groups.append({**parts, "slots": sorted(group.slots.items())})
    parts = {
        **{name: sorted_items(value) for name, value in record._asdict().items()},
        "before": numbered(record.before.nodes, before),
        "after": numbered(record.after.nodes, record.after.results),
        "groups": groups,
    }
    return "\n".join(f"{name}: {value}" for name, value in parts.items())


def is_scalar(node):
    return node.operation == "Input" and node.detail[0] == "scalar"


def sorted_items(value):
    return sorted(value.items()) if isinstance(value, dict) else value


def program_text(part):
    if not isinstance(part, Program):
        return part
    results = {"": part.value, **{name: each.node for name, each in part.changes.items()}}
    results.update({f"{n} fades": c.factor for n, c in part.changes.items() if c.factor})
    hows = sorted((name, each.how) for name, each in part.changes.items())
    return part.by_rows, numbered(part.nodes, results), hows


def numbered(nodes, results):
    found, places = [], {}

    def place(i):
        node = nodes[i]
        node = repr(node._replace(inputs=tuple(map(place, node.inputs))))
        if node not in places:
            places[node] = len(found)
            found.append(node)
        return places[node]

    return found, {name: place(results[name]) for name in sorted(results)}
