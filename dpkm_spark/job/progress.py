"""Progress on stderr: what is being done, and a sign of life while Spark works."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import TextIO

#: Seconds between signs of life where lines cannot be overwritten, as in a scheduler's log.
_LOG_INTERVAL = 60.0


class Progress:
    """Numbered steps with a clock; on a terminal the last line ticks.

    Times are shown to whoever runs the job and are written nowhere, since how long a scan takes
    depends on the rows.

    Parameters
    ----------
    name : str
        The job's name, in front of each line.
    quiet : bool
        Show nothing.
    stream : TextIO, optional
        Standard error by default.
    """

    def __init__(self, name: str, *, quiet: bool = False, stream: TextIO | None = None) -> None:
        self._name = name
        self._quiet = quiet
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._started = self._step_started = time.monotonic()
        self._lock = threading.Lock()
        self._current = ""
        self._width = 0
        self._stop = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Progress:
        """Start the clock."""
        if not self._quiet:
            self._ticker.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the clock and leave the cursor on a fresh line."""
        self._stop.set()
        if not self._quiet:
            self._ticker.join()
            self._end_line()

    def __call__(self, text: str, *, brief: bool = False) -> None:
        """Show a line; a brief one only on a terminal, where the next overwrites it."""
        if self._quiet or (brief and not self._terminal):
            return
        if brief:
            self._draw(f"{self._current} ({text})")
            return
        self._end_line()
        with self._lock:
            self._current = text
            self._step_started = time.monotonic()
        self._draw(text)

    def _tick(self) -> None:
        while not self._stop.wait(1.0 if self._terminal else _LOG_INTERVAL):
            if self._terminal:
                self._draw(self._current)
            elif time.monotonic() - self._step_started >= _LOG_INTERVAL:
                self._draw(f"still {self._current}")

    def _draw(self, text: str) -> None:
        if not text:
            return
        seconds = int(time.monotonic() - self._started)
        line = f"[{self._name} {seconds // 60:02d}:{seconds % 60:02d}] {text}"
        with self._lock:
            if self._terminal:
                self._stream.write("\r" + line.ljust(self._width))
                self._width = len(line)
            else:
                self._stream.write(line + "\n")
            self._stream.flush()

    def _end_line(self) -> None:
        with self._lock:
            if self._terminal and self._width:
                self._stream.write("\n")
                self._stream.flush()
            self._width = 0
