"""Checks that the figures in the documents are those of benchmarks/results: each number between
<!-- figures: NAME (begin) --> and (end) must belong to a sentence or row that figure_claims.py
computes from the files, and no document may cite a file of results elsewhere."""

import re

import figure_claims
from docs import markdown_files
from sources import finish, root_argument

REGION = re.compile(r"<!-- figures: (\S+) \(begin\) -->(.*?)<!-- figures: \1 \(end\) -->", re.S)
CITATION = re.compile(r"\]\([^)]*benchmarks/results/[^)]*\.jsonl\)")
# Does not match the digits in names: ResNet-20, AVX2, bf16, ADR 24.
NUMBER = re.compile(r"(?<![\w.-])(?<!ADR )\d[\d.,]*\w*")
CLAIMED = "\0"


def flat(text):
    """The text without the targets of links, and with single spaces as its only white space."""
    return " ".join(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).split())


def region_problems(place, text, claims):
    left = flat(text)
    for claim in map(flat, claims):
        if claim not in left:
            yield f"{place}: the results give '{claim}'"
        left = left.replace(claim, CLAIMED, 1)
    left = re.sub(r"`[^`]*`", "`code`", left)
    for number in NUMBER.finditer(left):
        around = left[max(0, number.start() - 40):number.end() + 20].replace(CLAIMED, "...")
        yield f"{place}: no result gives {number.group(0).rstrip('.,')} in '{around}'"


def problems(root):
    results = figure_claims.Results(root / "benchmarks/results")
    found = []
    for path in markdown_files(root):
        name = path.relative_to(root).as_posix()
        text = path.read_text()
        seen = {match.group(1): match.group(2) for match in REGION.finditer(text)}
        known = figure_claims.DOCUMENTS.get(name, {})
        for region in sorted(set(seen) | set(known)):
            place = f"{name}, figures {region}"
            if region not in seen or region not in known:
                found.append(f"{place}: is in only one of the document and figure_claims.py")
            else:
                found += region_problems(place, seen[region], known[region](results))
        outside = re.sub(r"```.*?```", "", REGION.sub("", text), flags=re.S)
        found += [f"{name}: cites {citation[2:-1]} outside of <!-- figures: ... -->"
                  for citation in CITATION.findall(outside)]
    return found


if __name__ == "__main__":
    finish(problems(root_argument()))
