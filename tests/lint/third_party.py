"""Checks that third-party files have the hashes in their SHA256SUMS, and that NOTICE names each
folder of them."""

import hashlib

from sources import finish, root_argument


def problems(root):
    found = []
    notice = root / "NOTICE"
    said = notice.read_text() if notice.exists() else ""
    for folder in sorted((root / "third_party").glob("*")):
        name = folder.relative_to(root).as_posix()
        if name not in said:
            found.append(f"NOTICE does not name {name}")
        sums = folder / "SHA256SUMS"
        listed = dict(reversed(line.split()) for line in sums.read_text().splitlines()) \
            if sums.exists() else {}
        for path in sorted(folder.iterdir()):
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            if path.name != "SHA256SUMS" and listed.pop(path.name, None) != digest:
                found.append(f"{name}/{path.name}: not the file that SHA256SUMS lists")
        found += [f"{name}/{missing}: is missing" for missing in listed]
    return found


if __name__ == "__main__":
    finish(problems(root_argument()))
