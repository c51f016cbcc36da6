"use strict";
(() => {
  const data = JSON.parse(document.getElementById("trees-data").textContent);
  if (!data.requests.length) return;
  const FATES = [
    ["on path", "accepted: the target said this token too"],
    ["kept", "verified, and not on the path"],
    ["not kept", "in the tree, but left out of the verify pass"],
    ["not admitted", "offered, but not admitted to the tree"],
    ["below the envelope", "outside what may be grown at all: never offered"],
  ];
  const at = (id) => document.getElementById(id);
  const make = (tag, className, text) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const state = { request: 0, position: 0, pane: 0, policies: [0, Math.min(1, data.policies.length - 1)], rows: [0, 0] };
  const panes = [];

  // Spaces and control characters as signs that can be seen; the empty token too.
  const SIGNS = { " ": "\u2423", "\n": "\u23ce", "\t": "\u21e5" };
  const sign = (one) => SIGNS[one] ?? `U+${one.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
  const visible = (text) => text.replace(/[\p{C}\p{Z}]/gu, sign) || "\u2205";
  const word = (place) => visible(data.words[place]);
  const number = (value, digits) => (value === null ? "-" : value.toFixed(digits));
  const request = () => data.requests[state.request];
  const trees = (pane) => request().trees[state.policies[pane]];
  // The round of a pane that covers the chosen position: its own root may lie before it.
  const covering = (pane) => {
    const found = trees(pane).filter((tree) => tree.position <= state.position);
    return found.length ? found[found.length - 1] : null;
  };

  // Rows of a tree, children below their parent, the likeliest first: [row, depth].
  const ordered = (tree) => {
    const below = tree.parent.map(() => []);
    tree.parent.forEach((parent, row) => { if (parent >= 0) below[parent].push(row); });
    const rank = (row) => (tree.fate[row] === 0 ? 2 : tree.survival[row] ?? 0);
    below.forEach((rows) => rows.sort((one, two) => rank(two) - rank(one)));
    const found = [], stack = [0];
    while (stack.length) {
      const row = stack.pop();
      if (at("cuts").checked || tree.fate[row] < 2) found.push(row);
      for (let child = below[row].length - 1; child >= 0; child--) stack.push(below[row][child]);
    }
    return found;
  };
  const origin = (bits) => ["", "lookup", "draft", "both"][bits] ?? "other";
  const isMissed = (tree, row) => tree.match[row] === 1 && tree.fate[row] > 1;

  const why = (pane, tree, row) => {
    if (tree.parent[row] < 0) return "the root: the last committed token";
    const parts = [`"${word(tree.token[row])}" at depth ${tree.depth[row]}, from ${origin(tree.sources[row])}`];
    if (tree.draft_prob[row] !== null)
      parts.push(`draft probability ${number(tree.draft_prob[row], 3)}, rank ${number(tree.draft_rank[row], 0)}`);
    if (tree.lookup_match[row] > 0)
      parts.push(`lookup matched ${tree.lookup_match[row]} tokens and saw it ${tree.lookup_count[row] ?? 0} times`);
    const scored = data.scoring[state.policies[pane]];
    parts.push(`prior ${number(tree.prior[row], 3)}, survival ${number(tree.survival[row], 4)} (${scored ? "the policy's" : "path prior"})`);
    const fate = tree.fate[row];
    let reason = FATES[fate][1];
    if (fate === 1) reason += tree.match[row] === 0 ? ": the target said another token" : ": its parent was not on the path";
    if (fate === 2) reason += ": the policy's own choice of nodes";
    if (fate === 4) reason += ` (path prior below ${data.floor.toPrecision(2)} when it would have been offered, or past the width)`;
    if (tree.grown[row]) reason += `; below it the policy asked ${origin(tree.grown[row])}`;
    if (isMissed(tree, row)) reason += "; the target did say this token: missed";
    return `${parts.join("; ")}. ${FATES[fate][0]}: ${reason}.`;
  };

  const build = (pane) => {
    const root = make("div", "pane"), label = make("label", "", pane ? "right " : "left ");
    const select = make("select"), facts = make("p", "facts"), list = make("ul");
    data.policies.forEach((name, place) => select.append(new Option(name, place)));
    select.value = state.policies[pane];
    select.setAttribute("aria-label", `policy on the ${pane ? "right" : "left"}`);
    select.addEventListener("change", () => {
      state.policies[pane] = Number(select.value);
      state.rows[pane] = 0;
      if (!pane) choosePrompt(state.request, state.position);
      render();
    });
    list.setAttribute("role", "tree");
    list.tabIndex = 0;
    list.addEventListener("focus", () => { state.pane = pane; mark(); });
    list.addEventListener("click", (event) => {
      const item = event.target.closest("li[data-row]");
      if (!item) return;
      state.pane = pane;
      state.rows[pane] = panes[pane].rows.indexOf(Number(item.dataset.row));
      mark();
    });
    label.append(select);
    root.append(label, facts, list);
    at("panes").append(root);
    panes.push({ facts, list, rows: [], tree: null });
  };

  const item = (pane, tree, row) => {
    const line = make("li", `row fate${tree.fate[row]}${isMissed(tree, row) ? " missed" : ""}`);
    line.id = `row-${pane}-${row}`;
    line.dataset.row = row;
    line.style.setProperty("--depth", tree.depth[row]);
    line.setAttribute("role", "treeitem");
    line.setAttribute("aria-level", tree.depth[row] + 1);
    line.setAttribute("aria-label", why(pane, tree, row));
    line.title = why(pane, tree, row);
    const name = make("span", "name", word(tree.token[row]));
    const fate = tree.depth[row] ? FATES[tree.fate[row]][0] : "root";
    name.append(make("span", "what", isMissed(tree, row) ? `missed, ${fate}` : fate));
    line.append(name, make("span", "", origin(tree.sources[row])));
    const isRoot = tree.parent[row] < 0;
    line.append(make("span", "", isRoot ? "" : number(tree.prior[row], 2)));
    line.append(make("span", "", isRoot ? "" : number(tree.survival[row], 3)));
    return line;
  };

  const fill = (pane) => {
    const view = panes[pane], tree = covering(pane);
    view.tree = tree;
    view.list.replaceChildren();
    view.list.setAttribute("aria-label", `tree of ${data.policies[state.policies[pane]]}`);
    view.rows = tree ? ordered(tree) : [];
    state.rows[pane] = Math.max(0, Math.min(state.rows[pane], view.rows.length - 1));
    if (!tree) { view.facts.textContent = "no round recorded here"; return; }
    const count = (test) => tree.fate.reduce((sum, fate) => sum + (test(fate) ? 1 : 0), 0);
    const accepted = count((fate) => fate === 0) - 1, verified = count((fate) => fate < 2) - 1;
    const offered = count((fate) => fate < 4) - 1, missed = tree.fate.filter((_, row) => isMissed(tree, row)).length;
    const behind = state.position - tree.position;
    view.facts.textContent =
      `accepted ${accepted}, committed ${tree.committed}, verified ${verified} of ${offered} offered` +
      (missed ? `, missed ${missed}` : "") +
      (behind ? `; its round began ${behind} token${behind > 1 ? "s" : ""} before the chosen root` : "; same root");
    const head = make("li", "row head");
    head.setAttribute("role", "none");
    ["token", "from", "prior", "survival"].forEach((text, place) => head.append(make("span", place ? "" : "name", text)));
    view.list.append(head, ...view.rows.map((row) => item(pane, tree, row)));
  };

  const mark = (isQuiet) => {
    panes.forEach((view, pane) => {
      view.list.removeAttribute("aria-activedescendant");
      view.rows.forEach((row, place) => {
        const line = document.getElementById(`row-${pane}-${row}`);
        const chosen = pane === state.pane && place === state.rows[pane];
        line.setAttribute("aria-selected", String(chosen));
        if (!chosen) return;
        view.list.setAttribute("aria-activedescendant", line.id);
        if (!isQuiet) line.scrollIntoView({ block: "nearest" });
      });
    });
    const view = panes[state.pane];
    at("said").textContent = view.tree ? why(state.pane, view.tree, view.rows[state.rows[state.pane]]) : "";
  };

  const context = () => {
    const now = request(), root = state.position - now.first, tree = covering(0), line = at("context");
    line.replaceChildren();
    if (root > 24) line.append("\u2026 ");
    now.text.slice(Math.max(0, root - 24), root).forEach((place) => line.append(data.words[place], data.as_text ? "" : " "));
    line.append(make("b", "", word(now.text[root])), data.as_text ? "" : " ");
    const end = root + 1 + (tree && tree.position === state.position ? tree.committed : 0);
    now.text.slice(root + 1, end).forEach((place) => line.append(make("mark", "", data.words[place]), data.as_text ? "" : " "));
    now.text.slice(end, end + 16).forEach((place) => line.append(data.words[place], data.as_text ? "" : " "));
    if (end + 16 < now.text.length) line.append(" \u2026");
  };

  const render = () => { context(); panes.forEach((_, pane) => fill(pane)); at("round").value = state.position; mark(true); };
  const choosePrompt = (place, position) => {
    state.request = place;
    const options = trees(0).map((tree, round) => new Option(`${round + 1}, token ${tree.position - request().first}`, tree.position));
    at("round").replaceChildren(...options);
    at("prompt").value = place;
    const known = trees(0).filter((tree) => tree.position <= position);
    state.position = (known[known.length - 1] ?? trees(0)[0]).position;
    state.rows = [0, 0];
  };
  const step = (by) => {
    const own = trees(0), place = own.findIndex((tree) => tree.position === state.position) + by;
    if (place < 0 || place >= own.length) return;
    state.position = own[place].position;
    state.rows = [0, 0];
    render();
  };
  const move = (by) => {
    const place = state.rows[state.pane] + by;
    if (place < 0 || place >= panes[state.pane].rows.length) return;
    state.rows[state.pane] = place;
    mark();
  };
  const turn = (by) => {
    const place = state.request + by;
    if (place < 0 || place >= data.requests.length) return;
    choosePrompt(place, -1);
    render();
  };

  const KEYS = {
    ArrowRight: () => step(1), ArrowLeft: () => step(-1), ArrowDown: () => move(1), ArrowUp: () => move(-1),
    j: () => move(1), k: () => move(-1), n: () => turn(1), p: () => turn(-1),
    o: () => { state.pane = 1 - state.pane; panes[state.pane].list.focus({ preventScroll: true }); mark(); },
  };
  at("explorer").addEventListener("keydown", (event) => {
    const act = KEYS[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey || /^(SELECT|INPUT)$/.test(event.target.tagName)) return;
    event.preventDefault();
    act();
  });
  data.requests.forEach((one, place) => at("prompt").append(new Option(one.task ? `${one.id} (${one.task})` : one.id, place)));
  at("prompt").addEventListener("change", (event) => { choosePrompt(Number(event.target.value), -1); render(); });
  at("round").addEventListener("change", (event) => { state.position = Number(event.target.value); state.rows = [0, 0]; render(); });
  at("back").addEventListener("click", () => step(-1));
  at("on").addEventListener("click", () => step(1));
  at("cuts").addEventListener("change", render);
  FATES.forEach(([name, text], fate) => { const part = make("span", `fate${fate}`, `${name}: ${text}`); at("legend").append(part); });
  build(0);
  build(1);
  at("explorer").hidden = false;
  choosePrompt(0, -1);
  // Open where the two differ: the first shared root at which other lengths were accepted.
  const first = trees(0).find((tree) => trees(1).some((other) => other.position === tree.position && other.committed !== tree.committed));
  if (first) state.position = first.position;
  render();
})();
