// Lets tables be sorted and searched, and opens the details that a link names.
// Text only ever becomes text: nothing that a model calls itself is taken for markup.
function sortable(table) {
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    if (head.classList.contains("plain")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const falling = head.getAttribute("aria-sort") === "descending"
        || (head.getAttribute("aria-sort") === null && !head.classList.contains("n"));
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", falling ? "ascending" : "descending");
      const value = (row) => {
        const cell = row.cells[column];
        return cell.dataset.sort === undefined ? cell.textContent : cell.dataset.sort;
      };
      const compare = (a, b) => {
        const [one, two] = [value(a), value(b)];
        if (one === "" || two === "") return (one === "") - (two === "");  // what lacks comes last
        const order = head.classList.contains("n") ? Number(one) - Number(two) : one.localeCompare(two);
        return falling ? order : -order;
      };
      body.append(...[...body.rows].sort(compare));
    });
  });
}

function searchable(table) {
  if (table.tBodies[0].rows.length < 8) return;
  const box = document.createElement("input");
  box.type = "search";
  box.placeholder = "search this table";
  box.setAttribute("aria-label", box.placeholder);
  table.parentElement.before(box);
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of table.tBodies[0].rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  });
}

function openLinked() {
  const found = location.hash && document.getElementById(location.hash.slice(1));
  if (found && found.matches("details")) {
    found.open = true;
    found.scrollIntoView();
    found.querySelector("summary").focus();
  }
}

for (const table of document.querySelectorAll("table.sortable")) sortable(table);
for (const table of document.querySelectorAll("table.searchable")) searchable(table);
window.addEventListener("hashchange", openLinked);
openLinked();
