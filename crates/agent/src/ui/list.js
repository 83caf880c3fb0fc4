// A list of which only the rows in sight exist, so that ten thousand cost what thirty cost.

import { el } from "./dom.js";

const SPARE = 6;

/**
 * `holder` gets a head and a scrolling body. `make(row)` fills a new row once; `fill(row, item)` shows an item in it;
 * `open(item)` is called for a click or Enter; `empty` is said when there is nothing. A title with a third word is pressed to
 * sort by that: `sort(word)`.
 */
export class List {
  constructor(holder, { label, head, make, fill, open, empty, key, sort }) {
    Object.assign(this, { make, fill, open, key, items: [], at: -1, chosen: null, rows: new Map(), spare: [] });
    this.emptyText = empty;
    const title = ([text, cls, by]) => (by ? el("button", `sort ${cls ?? ""}`, text, { type: "button", "data-item": "sort", "data-sort": by, title: `Sort by ${text.toLowerCase()}` }) : el("span", cls ?? "", text));
    this.head = head && el("div", "head rowgrid", head.map(title), sort ? {} : { "aria-hidden": "true" });
    this.head?.addEventListener("click", (event) => event.target.dataset.sort && sort(event.target.dataset.sort));
    if (head) holder.append(this.head);
    this.none = el("p", "empty", "");
    this.sizer = el("div", "sizer");
    this.scroll = el("div", "scroll", [this.none, this.sizer], { tabindex: "0", role: "listbox", "aria-label": label });
    holder.append(this.scroll);
    this.scroll.addEventListener("scroll", () => this.draw(), { passive: true });
    this.scroll.addEventListener("keydown", (event) => this.pressed(event));
    this.scroll.addEventListener("click", (event) => this.clicked(event));
    new ResizeObserver(() => this.draw()).observe(this.scroll);
  }

  show(items) {
    this.items = items;
    if (this.at >= items.length) this.at = items.length - 1;
    this.none.hidden = items.length > 0;
    this.none.textContent = typeof this.emptyText === "function" ? this.emptyText() : this.emptyText;
    this.draw();
  }

  choose(key) {
    this.chosen = key;
    this.draw();
  }

  get height() {
    return parseInt(getComputedStyle(this.scroll).getPropertyValue("--row"), 10) || 44;
  }

  /** How wide the scrollbar is: whatever stands above the rows leaves as much room. */
  get bar() {
    return this.scroll.offsetWidth - this.scroll.clientWidth;
  }

  draw() {
    const height = this.height, view = this.scroll.clientHeight;
    if (!view) return;
    this.sizer.style.height = `${this.items.length * height}px`;
    if (this.head) this.head.style.marginRight = `${this.bar}px`;
    const first = Math.max(0, Math.floor(this.scroll.scrollTop / height) - SPARE);
    const last = Math.min(this.items.length, Math.ceil((this.scroll.scrollTop + view) / height) + SPARE);
    for (const [index, row] of this.rows) {
      if (index < first || index >= last) {
        this.rows.delete(index);
        row.remove();
        this.spare.push(row);
      }
    }
    for (let index = first; index < last; index += 1) this.place(index, height);
  }

  place(index, height) {
    let row = this.rows.get(index);
    if (!row) {
      row = this.spare.pop() ?? this.fresh();
      this.rows.set(index, row);
      this.sizer.append(row);
    }
    const item = this.items[index];
    row.style.top = `${index * height}px`;
    row.dataset.index = index;
    row.id = `${this.scroll.getAttribute("aria-label")}-${index}`.replace(/\W/g, "-");
    row.setAttribute("aria-setsize", this.items.length);
    row.setAttribute("aria-posinset", index + 1);
    row.setAttribute("aria-selected", String(this.key(item) === this.chosen));
    row.classList.toggle("at", index === this.at);
    this.fill(row, item);
    if (index === this.at) this.scroll.setAttribute("aria-activedescendant", row.id);
  }

  fresh() {
    const row = el("div", "row rowgrid", [], { role: "option" });
    this.make(row);
    return row;
  }

  /** Every row that is there, with its item. */
  *seen() {
    for (const [index, row] of this.rows) if (this.items[index]) yield [row, this.items[index]];
  }

  clicked(event) {
    const row = event.target.closest(".row");
    if (!row) return;
    this.at = Number(row.dataset.index);
    this.draw();
    this.open?.(this.items[this.at]);
  }

  pressed(event) {
    const page = Math.max(1, Math.floor(this.scroll.clientHeight / this.height) - 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.target !== this.scroll) return;
    if (event.key === "Enter" && this.items[this.at]) return this.open?.(this.items[this.at]);
    const move = moves[event.key];
    if (move === undefined || !this.items.length) return;
    event.preventDefault();
    this.at = Math.max(0, Math.min(this.items.length - 1, this.at + move));
    const height = this.height, top = this.at * height, view = this.scroll.clientHeight;
    if (top < this.scroll.scrollTop) this.scroll.scrollTop = top;
    if (top + height > this.scroll.scrollTop + view) this.scroll.scrollTop = top + height - view;
    this.draw();
  }
}
