"""Pages of the site whose files stand outside of docs/: the README as its start, CONTRIBUTING, CHANGELOG, a distribution's own README.

Links between files are written as a code host follows them. Here they lead to the pages that those files became; what is no page of
the site (a source file) stays a word. A link whose words are a file's path says the page's title.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
#: From the root -> as the site names it.
ALONE = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
FENCED = re.compile(r"(^```.*?^```|`[^`\n]+`(?!\]))", re.M | re.S)
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\((?!\w+:)([^)#\s]*)(#[^)\s]*)?\)")


def outside() -> dict[str, str]:
    """Every such file from the root, and its place in the site."""
    own = [file for under in ("iron_*", "iron_*/*", "examples/*") for file in sorted(ROOT.glob(f"{under}/README.md"))]
    return ALONE | {file.relative_to(ROOT).as_posix(): f"packages/{file.parent.name}.md" for file in own}


def places() -> dict[Path, str]:
    """Every file that is a page, and its place in the site."""
    pages = {file: file.name for file in (ROOT / "docs").glob("*.md")}
    return pages | {ROOT / path: place for path, place in outside().items()}


def title(file: Path) -> str:
    """A page's heading."""
    return file.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def rewritten(text: str, source: Path, place: str) -> str:
    """A page's text with its links to files as links of the site; `source` is where it stands, `place` where it goes."""
    known = places()

    def link(found: re.Match[str]) -> str:
        words, path, anchor = found[1], found[2], found[3] or ""
        target = (source.parent / path).resolve()
        if not path or not target.exists():
            return found[0]  # an anchor of the page itself; or nothing, which the build finds
        if target.is_dir():
            target = target / "README.md"
        if target not in known:
            return words
        if words == path:
            words = title(target)
        return f"[{words}]({os.path.relpath(known[target], Path(place).parent)}{anchor})"

    parts = FENCED.split(text)
    return "".join(part if i % 2 else LINK.sub(link, part) for i, part in enumerate(parts))


def on_config(config: Any) -> Any:
    """The distributions' pages in the navigation: where their index is."""
    contributors = next(iter(part["Contributors"] for part in config.nav if "Contributors" in part))
    pages = [place for path, place in outside().items() if "/" in path]
    contributors[contributors.index("packages/index.md")] = {"Distributions": ["packages/index.md", *pages]}
    return config


def on_files(files: Any, config: Any) -> Any:
    """The files outside, and an index of the distributions'."""
    from mkdocs.structure.files import File

    for path, place in outside().items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
    rows = [f"* [{Path(path).parent}]({Path(place).name})" for path, place in outside().items() if "/" in path]
    text = "# The distributions\n\nEach has a page of its own.\n\n" + "\n".join(rows) + "\n"
    files.append(File.generated(config, "packages/index.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links, as above. What is made here has the site's already."""
    place = page.file.src_uri
    source = next((file for file, known in places().items() if known == place), None)
    return rewritten(markdown, source, place) if source else markdown
