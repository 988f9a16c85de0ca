"""Opens the pages of the built site in a browser: python docs/tools/check_site.py build/site

No error in the console, no request to a network, no page wider than a phone, and every public name of the
library in the index. Without Chromium the browser is left out, unless GRAND_TEST_BROWSER=required.
"""

from __future__ import annotations

import os
import shutil
import sys
from importlib import import_module
from pathlib import Path

from sphinx.util.inventory import InventoryFile
from sphinx_api import ROOMS, public_names

WIDTHS = (1280, 390)


def missing_names(site: Path) -> list[str]:
    """Public names that the API reference does not have."""
    with open(site / "objects.inv", "rb") as file:
        inventory = InventoryFile.load(file, "", lambda base, path: path)
    known = {name for kind, names in inventory.items() if kind.startswith("py:") for name in names}
    wanted = [
        f"graphdiffusion.{room}.{name}"
        for room in ROOMS
        for name in public_names(import_module(f"graphdiffusion.{room}"))
    ]
    print(f"{len(wanted)} public names in the API reference")
    return [name for name in wanted if name not in known]


def open_pages(site: Path, browser_path: str) -> list[str]:
    """What goes wrong on the pages in a browser."""
    from playwright.sync_api import sync_playwright

    errors: list[str] = []
    pages = sorted(site.rglob("*.html"))
    with sync_playwright() as driver:
        quiet = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = driver.chromium.launch(executable_path=browser_path, args=quiet)
        for width in WIDTHS:
            tab = browser.new_context(viewport={"width": width, "height": 850}).new_page()
            seen: list[str] = []
            tab.on("console", lambda m, seen=seen: seen.append(m.text) if m.type == "error" else None)
            tab.on("pageerror", lambda e, seen=seen: seen.append(str(e)))
            tab.on("request", lambda r, seen=seen: seen.append(f"loads {r.url}"))
            for page in pages:
                name = page.relative_to(site)
                tab.goto(page.resolve().as_uri())
                wide = tab.evaluate("document.documentElement.scrollWidth")
                seen += [f"is {wide} pixels wide"] * (wide > width)
                own = [text for text in seen if not text.startswith(("loads file:", "loads data:"))]
                errors += [f"{name} at {width}: {text}" for text in own]
                seen.clear()
        browser.close()
    print(f"{len(pages)} pages opened at {' and '.join(map(str, WIDTHS))} pixels")
    return errors


def main() -> int:
    site = Path(sys.argv[1])
    errors = [f"{name} is public, and not in the API reference" for name in missing_names(site)]
    chromium = shutil.which("chromium")
    if chromium is None and os.environ.get("GRAND_TEST_BROWSER") != "required":
        print("chromium is not installed: no page is opened")
    else:
        errors += open_pages(site, chromium or "chromium")
    for error in errors:
        print(error, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
