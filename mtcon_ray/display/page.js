// Sorts the rows of a table by a column: a click on its head, and the other way round on the next.
// An order of numbers is by number, also of the first value of "temperature=0.05 epochs=8", and texts
// that are none come last.
for (const head of document.querySelectorAll("th button")) {
  head.addEventListener("click", () => {
    const th = head.closest("th"), body = head.closest("table").tBodies[0];
    const falls = th.getAttribute("aria-sort") !== "descending";
    for (const other of th.parentNode.cells) other.removeAttribute("aria-sort");
    th.setAttribute("aria-sort", falls ? "descending" : "ascending");
    const key = (row) => row.cells[th.cellIndex].textContent.trim();
    const number = (row) => parseFloat(key(row).replace(/^[^=\s]*=/, ""));
    const order = (a, b) => {
      const [x, y] = [number(a), number(b)], sign = falls ? -1 : 1;
      if (!isNaN(x) && !isNaN(y) && x !== y) return sign * (x - y);
      if (isNaN(x) !== isNaN(y)) return isNaN(x) ? 1 : -1;
      return sign * key(a).localeCompare(key(b), undefined, { numeric: true });
    };
    body.append(...[...body.rows].sort(order));
  });
}
