// Filters of the first page, kept in its address, and buttons that copy. The pages are whole without it.
"use strict";
(() => {
  const NAMES = ["verdict", "severity", "oracle", "stage", "backend", "torch", "tag", "text"];
  const RED = new Set(["FAIL", "ERROR", "XPASS", "VACUOUS", "FLAKY", "INVALID"]);

  for (const block of document.querySelectorAll("pre.copy")) {
    const box = document.createElement("div");
    box.className = "copying";
    block.replaceWith(box);
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.setAttribute("aria-label", "Copy this command");
    button.addEventListener("click", () => copy(block, button));
    box.append(block, button);
  }

  async function copy(block, button) {
    try {
      await navigator.clipboard.writeText(block.textContent);
      button.textContent = "Copied";
    } catch {  // not allowed here: a person copies the selection
      getSelection().selectAllChildren(block);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  }

  const form = document.getElementById("filters");
  const table = document.getElementById("matrix");
  if (!form || !table) return;
  form.hidden = false;

  const heads = [...table.tHead.rows[0].cells].slice(1);
  const columns = heads.map((head) => ({head, backend: head.dataset.backend, torch: head.dataset.torch}));
  const groups = [...document.querySelectorAll("article.group")].map((element) => ({
    element, of: element.querySelector(".of"), text: element.querySelector("h3").textContent.toLowerCase(),
  }));
  const signatures = new Map(groups.map((group) => [group.element.dataset.g, group.text]));
  const sections = [...table.tBodies].map((body) => ({body, rows: [...body.rows].slice(1).map(read)}));
  let filtered = false;

  function read(row) {
    const cells = [];
    [...row.cells].slice(1).forEach((cell, at) => {
      const text = cell.textContent;
      if (!text) return;
      const data = cell.dataset;
      cells.push({
        cell, column: columns[at], verdict: data.v || text, severity: data.w || "", oracles: (data.o || "").split(" "),
        stage: data.s || "", group: data.g || "", text: (text + " " + (signatures.get(data.g) || "")).toLowerCase(),
      });
    });
    return {row, cells, tags: (row.dataset.t || "").split(" "), label: row.cells[0].textContent.toLowerCase()};
  }

  // An anchor such as #cases is no filter.
  const address = () => new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");

  function chosen() {
    const values = {};
    const asked = address();
    for (const name of NAMES) {
      const field = form.elements[name];
      values[name] = field ? field.value : asked.get(name) || "";
    }
    values.text = values.text.trim().toLowerCase();
    return values;
  }

  function fits(value, row, item) {
    return (!value.verdict || item.verdict === value.verdict || (value.verdict === "red" && RED.has(item.verdict)))
      && (!value.severity || item.severity === value.severity)
      && (!value.oracle || item.oracles.includes(value.oracle))
      && (!value.stage || item.stage === value.stage)
      && (!value.backend || item.column.backend === value.backend)
      && (!value.torch || item.column.torch === value.torch)
      && (!value.tag || row.tags.includes(value.tag))
      && (!value.text || row.label.includes(value.text) || item.text.includes(value.text));
  }

  function apply() {
    const value = chosen();
    const active = NAMES.some((name) => value[name]);
    if (!active && !filtered) return;
    filtered = active;
    const counts = new Map();
    let shown = 0;
    let total = 0;
    for (const column of columns) {
      column.hidden = Boolean((value.backend && column.backend !== value.backend) || (value.torch && column.torch !== value.torch));
      if (column.head.hidden !== column.hidden) {
        column.head.hidden = column.hidden;
        const at = column.head.cellIndex;
        for (const {rows} of sections) for (const {row} of rows) row.cells[at].hidden = column.hidden;
      }
    }
    for (const {body, rows} of sections) {
      let some = false;
      for (const row of rows) {
        let any = !active;
        for (const item of row.cells) {
          const fit = !active || fits(value, row, item);
          item.cell.classList.toggle("dim", !fit);
          total += 1;
          if (!fit) continue;
          any = true;
          shown += 1;
          if (item.group) counts.set(item.group, (counts.get(item.group) || 0) + 1);
        }
        row.row.hidden = !any;
        some = some || any;
      }
      body.hidden = !some;
    }
    for (const {element, of} of groups) {
      const count = counts.get(element.dataset.g) || 0;
      element.hidden = active && !count;
      of.textContent = active ? `, ${count} shown` : "";
    }
    document.getElementById("shown").textContent = active ? `${shown} of ${total} results` : "";
  }

  function restore() {
    const asked = address();
    for (const name of NAMES) {
      const field = form.elements[name];
      if (!field) continue;
      field.value = asked.get(name) || "";
      if (field.selectedIndex === -1) {  // a value that no option has: nothing is shown for it, rather than everything
        const option = new Option(asked.get(name), asked.get(name));
        field.add(option);
        field.value = option.value;
      }
    }
    apply();
  }

  function changed() {
    const words = new URLSearchParams();
    for (const name of NAMES) {
      const field = form.elements[name];
      if (field && field.value) words.set(name, field.value);
    }
    const text = words.toString();
    history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
    apply();
  }

  form.addEventListener("input", changed);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(changed));
  addEventListener("hashchange", () => { if (location.hash.includes("=") || filtered && !location.hash) restore(); });
  addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, select, textarea");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      form.elements.text.focus();
    } else if (event.key === "Escape" && event.target === form.elements.text) {
      event.target.value = "";
      changed();
    }
  });
  restore();
})();
