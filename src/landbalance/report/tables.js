// Tables: what a cell of the confusion matrix means, and rows sorted by a column.
"use strict";

for (const matrix of document.querySelectorAll(".matrix")) {
  const cells = [...matrix.querySelectorAll("td.cell")];
  const rows = [...matrix.tBodies[0].rows];
  const told = matrix.closest("figure").querySelector(".told");
  const columns = cells.length / rows.length;
  let marked = [];

  const show = (cell) => {
    for (const item of marked) item.classList.remove("aimed");
    const number = cells.indexOf(cell);
    marked = [rows[Math.floor(number / columns)].cells[0], matrix.tHead.rows[1].cells[1 + (number % columns)], cell];
    for (const item of marked) item.classList.add("aimed");
    told.textContent = cell.dataset.told;
  };
  const focus = (cell) => {
    for (const item of cells) item.tabIndex = item === cell ? 0 : -1;
    cell.focus();
  };
  cells[0].tabIndex = 0;
  for (const cell of cells) {
    cell.addEventListener("pointerenter", () => show(cell));
    cell.addEventListener("focus", () => show(cell));
    cell.addEventListener("click", () => focus(cell));
  }
  const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
  matrix.addEventListener("keydown", (event) => {
    const number = cells.indexOf(event.target);
    if (number < 0 || !(event.key in steps)) return;
    event.preventDefault();
    const next = number + steps[event.key];
    const sideways = Math.abs(steps[event.key]) === 1;
    if (cells[next] && (!sideways || Math.floor(next / columns) === Math.floor(number / columns))) focus(cells[next]);
  });

  const shares = matrix.closest("figure").querySelectorAll(".shares input");
  for (const choice of shares) choice.addEventListener("change", () => {
    for (const cell of cells) cell.textContent = cell.dataset[choice.value];
  });
  matrix.closest("figure").querySelector(".shares").hidden = false;
}

for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells].filter((head) => head.dataset.sort);
  for (const head of heads) {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const falling = head.getAttribute("aria-sort") !== (head.dataset.sort === "falling" ? "descending" : "ascending");
      const down = (head.dataset.sort === "falling") === falling;
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = (row) => row.cells[head.cellIndex]?.dataset.value ?? "";
      const order = (one, two) => {
        if (!one || !two) return Boolean(two) - Boolean(one) || 0; // what is not known comes last, either way
        const numbers = [Number(one), Number(two)];
        const sign = numbers.some(Number.isNaN) ? one.localeCompare(two) : numbers[0] - numbers[1];
        return down ? -sign : sign;
      };
      const rows = [...table.tBodies[0].rows];
      rows.sort((one, two) => order(value(one), value(two)));
      table.tBodies[0].append(...rows);
    });
  }
}
