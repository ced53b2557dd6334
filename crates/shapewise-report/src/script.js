"use strict";
(() => {
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];

  // Light and dark: the button overrules the system; a page from a disk may not be allowed to remember it.
  const root = document.documentElement;
  const remember = (value) => { try { localStorage.setItem("shapewise-theme", value); } catch { /* not allowed */ } };
  try { const kept = localStorage.getItem("shapewise-theme"); if (kept) root.dataset.theme = kept; } catch { /* not allowed */ }
  document.getElementById("theme").addEventListener("click", () => {
    const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    root.dataset.theme = (root.dataset.theme || system) === "dark" ? "light" : "dark";
    remember(root.dataset.theme);
  });

  // A heading sorts its table: numbers by value, words by letter, a second press the other way round.
  for (const table of all("table")) {
    const body = table.tBodies[0];
    all("th", table).forEach((heading, column) => heading.addEventListener("click", () => {
      const down = heading.getAttribute("aria-sort") === "ascending";
      all("th", table).forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => {
        const cell = row.cells[column];
        return cell.dataset.v === undefined ? cell.textContent : cell.dataset.v === "inf" ? Infinity : Number(cell.dataset.v);
      };
      const compare = (a, b) => (typeof a === "number" ? (a < b ? -1 : a > b ? 1 : 0) : a.localeCompare(b, undefined, { numeric: true }));
      const rows = [...body.rows].map((row) => [key(row), row]);
      rows.sort((a, b) => (down ? -1 : 1) * compare(a[0], b[0]));
      body.append(...rows.map((pair) => pair[1]));
    }));
  }
  for (const field of all(".filter")) {
    field.addEventListener("input", () => {
      const wanted = field.value.toLowerCase();
      for (const row of all("tbody tr", field.parentElement)) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    });
  }

  // Buttons of a legend hide and show what has their colour in the same figure.
  for (const button of all(".legend button")) {
    button.addEventListener("click", () => {
      const shown = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", shown);
      for (const mark of all(`svg [data-key="${button.dataset.key}"]`, button.closest("figure"))) mark.toggleAttribute("data-off", !shown);
    });
  }

  // Titles of marks as a tip that follows the pointer; the browser's own would come late and twice.
  const tip = document.getElementById("tip");
  let pointed = null;
  const leave = () => {
    if (pointed) pointed.mark.prepend(pointed.title);
    pointed = null;
    tip.hidden = true;
  };
  document.addEventListener("pointerover", (event) => {
    if (pointed && pointed.mark === event.target) return;
    leave();
    const mark = event.target.closest?.("circle, rect");
    const title = mark && mark.querySelector("title");
    if (!title) return;
    pointed = { mark, title };
    title.remove();
    tip.textContent = title.textContent;
    tip.hidden = false;
  });
  document.addEventListener("pointermove", (event) => {
    if (!pointed) return;
    const { offsetWidth: width, offsetHeight: height } = tip;
    tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
    tip.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 12 : event.clientY + 18}px`;
  });
  document.addEventListener("pointerleave", leave);
})();
