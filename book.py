#!/usr/bin/env python3
"""A preprocessor of mdBook: pages of the repository's root join the book, and links lead to pages of the book.

mdBook knows only what is below docs/. docs/SUMMARY.md also lists pages such as ../SAFETY.md; they get a place in the book here.
A link to a file that is not in the book (a source file, a folder) becomes its text and the file's path. A link to nothing
fails the build.
"""

import json
import os
import re
import sys

LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def place(source):
    """Where a page is in the book, by its path below docs/."""
    if source == "../README.md":
        return "index.md"
    if source == "README.md":
        return "contents.md"
    return re.sub(r"README\.md$", "index.md", source.removeprefix("../"))


def chapters(items):
    for item in items:
        chapter = item.get("Chapter") if isinstance(item, dict) else None
        if chapter:
            yield chapter
            yield from chapters(chapter["sub_items"])


def relink(text, source, pages):
    """The text of a page, with links that work in the book."""
    here = os.path.dirname(place(source))

    def replace(match):
        image, label, link = match.groups()
        if "://" in link:
            return match.group(0)
        file, hash, anchor = link.partition("#")
        if not file:
            return match.group(0)
        target = os.path.normpath(os.path.join("docs", os.path.dirname(source), file))
        if not os.path.exists(target):
            sys.exit(f"docs/{source}: {link} leads nowhere")
        below = os.path.relpath(target, "docs")
        if below in pages or (not below.startswith("..") and not target.endswith(".md") and os.path.isfile(target)):
            path = place(below) if below in pages else below
            return f"{image}[{label}]({os.path.relpath(path, here or '.')}{hash}{anchor})"
        return label if label.strip("`") == target else f"{label} (`{target}`)"

    parts = re.split(r"(?ms)(^ *```.*?^ *```$)", text)
    return "".join(part if i % 2 else LINK.sub(replace, part) for i, part in enumerate(parts))


def main():
    if sys.argv[1:2] == ["supports"]:
        return
    _, book = json.load(sys.stdin)
    items = book.get("items", book.get("sections"))
    found = [chapter for chapter in chapters(items) if chapter.get("source_path")]
    pages = {chapter["source_path"] for chapter in found}
    for chapter in found:
        source = chapter["source_path"]
        chapter["content"] = relink(chapter["content"], source, pages)
        chapter["path"] = place(source)
    json.dump(book, sys.stdout)


if __name__ == "__main__":
    main()
