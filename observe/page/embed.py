"""Puts a page together and writes it as a C++ source:
embed.py OUTPUT FOLDER_OF_UPLOT FOLDER_OF_PAGE NAMESPACE SCRIPT...

The page is one HTML file with everything inside. A browser runs its script and uses its style
only if their hashes are those of the policy (Content-Security-Policy), which is written, too.
"""

import base64
import hashlib
import pathlib
import sys

LITERAL_BYTES = 90


def policy_hash(text):
    digest = hashlib.sha256(text.encode()).digest()
    return "'sha256-" + base64.b64encode(digest).decode() + "'"


def page(here, uplot, scripts):
    script = uplot.joinpath("uPlot.iife.min.js").read_text()
    script += "".join("\n" + here.joinpath(name).read_text() for name in scripts)
    style = uplot.joinpath("uPlot.min.css").read_text() + here.joinpath("page.css").read_text()
    if "</" + "script" in script or "</" + "style" in style:
        sys.exit("embed.py: the end of an element inside it")
    html = here.joinpath("page.html").read_text()
    for mark, text in (("/* style */", style), ("/* script */", script)):
        if html.count(mark) != 1:
            sys.exit(f"embed.py: page.html has no place, or several, for {mark}")
        html = html.replace(mark, text)
    return html, policy_hash(script), policy_hash(style)


def literal(text):
    """A C++ string literal of any length, byte by byte where C++ would read something else."""
    lines = []
    data = text.encode()
    for begin in range(0, len(data), LITERAL_BYTES):
        line = ""
        for byte in data[begin:begin + LITERAL_BYTES]:
            plain = 32 <= byte < 127 and chr(byte) not in '"\\?'
            line += chr(byte) if plain else f"\\{byte:03o}"
        lines.append(f'    "{line}"')
    return "\n".join(lines)


def main():
    output, uplot, here = (pathlib.Path(argument) for argument in sys.argv[1:4])
    namespace = sys.argv[4]
    html, script, style = page(here, uplot, sys.argv[5:])
    size = len(html.encode())
    output.write_text(
        f"#include <string_view>\n\nnamespace {namespace} {{\n\n"
        f"extern const std::string_view kPage(\n{literal(html)},\n    {size});\n"
        f'extern const std::string_view kScriptHash("{script}");\n'
        f'extern const std::string_view kStyleHash("{style}");\n\n'
        f"}}  // namespace {namespace}\n")


main()
