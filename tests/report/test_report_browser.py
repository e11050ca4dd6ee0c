"""The report in a real Chromium: desktop and phone width, light and dark.

Set ``DPKM_SCREENSHOTS`` to a folder to keep the pictures.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from report_releases import (
    HOSTILE,
    dplloyd_release,
    exact_release,
    gkm_release,
    pgkm_release,
    release,
)

from dpkm_spark.report import render_html

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
NARROWEST_WINDOW = 500
HEIGHT = 3600
REPORTS = {
    "plane": lambda: release(2, k=15, m=22),
    "line": lambda: release(1, k=4, m=64),
    "many": lambda: release(12, k=100, m=2),
    "hostile": lambda: release(6, names=HOSTILE, m=3, title="y" * 300, source="z" * 300),
    "seeded": lambda: release(2, k=2, private=False, epsilon="1/3"),
    "rounds": lambda: dplloyd_release(4, k=5, split="optimal"),
    "blocks": lambda: gkm_release(2, k=5),
    "selections": lambda: pgkm_release(2, k=5, generations=8),
    "unsized line": lambda: release(1, k=4, with_synopsis=False, noisy_sizes=None, answers=()),
    "evaluated": lambda: release(2, k=5, evaluation={"NICV": "0.0123"}, warnings=("Few rows.",)),
    "exact": lambda: exact_release(2, evaluation={"x" * 90: "y" * 200}, warnings=("z" * 300,)),
    "empty": lambda: release(2, k=1, m=1, counts=np.array([-7]), sizes=np.array([-7.0])),
}
#: Runs in the page around the report, since the report itself allows no script.
MEASURE = """
onload = () => {
  const view = document.getElementById("view"), page = view.contentDocument;
  const look = view.contentWindow.getComputedStyle.bind(view.contentWindow);
  const light = text => {
    const part = text.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
      .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
  };
  const behind = e => {
    for (; e; e = e.parentElement) {
      const colour = look(e).backgroundColor;
      if (colour.startsWith("rgb(")) return colour;
    }
  };
  const contrast = e => {
    const [low, high] = [light(look(e).color), light(behind(e))].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const texts = "p, h1, h2, h3, dt, dd, small, th, td:not(.heat), .chip";
  const words = [...page.querySelectorAll(texts)];
  document.getElementById("found").textContent = JSON.stringify({
    width: page.documentElement.clientWidth,
    scroll: page.documentElement.scrollWidth,
    background: look(page.body).backgroundColor,
    contrast: Math.min(...words.filter(e => e.textContent.trim()).map(contrast)),
    plots: [...page.querySelectorAll(".plot")].map(e => e.getBoundingClientRect().width),
    tables: [...page.querySelectorAll("table")].map(e => e.parentElement.className),
    scripts: page.scripts.length,
  });
};
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (Debian: chromium)"),
]


def _chromium(folder: Path, page: Path, width: int, dark: bool, *flags: str) -> str:
    window = max(width, NARROWEST_WINDOW)
    command = [
        CHROMIUM or "chromium",
        *FLAGS,
        f"--user-data-dir={folder / 'profile'}",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        f"--window-size={window},{HEIGHT}",
        *flags,
        page.as_uri(),
    ]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return run.stdout


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390], ids=["desktop", "phone"])
@pytest.mark.parametrize("name", list(REPORTS))
def test_looks_right_in_chromium(name: str, width: int, dark: bool, tmp_path: Path) -> None:
    report = html.escape(render_html(REPORTS[name]()), quote=True)
    page = tmp_path / "page.html"
    page.write_text(
        "<!DOCTYPE html><meta charset=utf-8><style>body{margin:0}iframe{border:0;display:block}"
        f"</style><iframe id=view width={width} height={HEIGHT} srcdoc='{report}'></iframe>"
        f"<pre id=found></pre><script>{MEASURE}</script>",
        encoding="utf-8",
    )
    dom = _chromium(tmp_path, page, width, dark, "--dump-dom")
    match = re.search(r'<pre id="found">(.+?)</pre>', dom, re.DOTALL)
    assert match
    found = json.loads(html.unescape(match[1]))
    assert found["width"] == width
    assert found["scroll"] <= width
    assert found["scripts"] == 0
    assert found["contrast"] >= 4.5  # WCAG 2.2, level AA
    assert min(found["plots"]) >= 180
    assert set(found["tables"]) == {"scroll"}
    brightness = sum(map(int, re.findall(r"\d+", found["background"])))
    assert brightness < 150 if dark else brightness > 650

    kept = Path(os.environ.get("DPKM_SCREENSHOTS", tmp_path))
    kept.mkdir(parents=True, exist_ok=True)
    shot = kept / f"{name.replace(' ', '-')}-{width}-{'dark' if dark else 'light'}.png"
    _chromium(tmp_path, page, width, dark, f"--screenshot={shot}")
    content = shot.read_bytes()
    assert struct.unpack(">II", content[16:24]) == (max(width, NARROWEST_WINDOW), HEIGHT)
    assert len(content) > 20_000  # not a blank page
