// Search as you type, keyboard, theme, live updates. Pages work without it.

document.documentElement.classList.add("with-script");

// Theme: the server renders the cookie, so that a page never flashes in the other theme.
const themeButton = document.querySelector("[data-theme-toggle]");
if (themeButton) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const current = () => document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light");
  const label = () => { themeButton.textContent = current() === "dark" ? "Light theme" : "Dark theme"; };
  themeButton.hidden = false;
  label();
  dark.addEventListener("change", label);
  themeButton.addEventListener("click", () => {
    const theme = current() === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    document.cookie = `olm-theme=${theme}; path=/; max-age=31536000; samesite=strict`;
    label();
  });
}

// An icon that cannot be shown becomes its letter.
const letterIcon = (image) => {
  const letter = document.createElement("span");
  letter.className = "icon letter";
  letter.ariaHidden = "true";
  letter.textContent = image.dataset.letter;
  image.replaceWith(letter);
};
const checkIcons = (root) => {
  for (const image of root.querySelectorAll("img[data-letter]")) {
    if (image.complete && image.naturalWidth === 0 && image.src) letterIcon(image);
  }
};
document.addEventListener("error", (event) => {
  if (event.target instanceof HTMLImageElement && event.target.dataset.letter) letterIcon(event.target);
}, true);
checkIcons(document);

// Forms with data-live="ID": a change replaces the content of the element ID, and the address.
for (const form of document.querySelectorAll("form[data-live]")) {
  const target = document.getElementById(form.dataset.live);
  let timer;
  let running;
  const address = () => {
    const query = new URLSearchParams(new FormData(form));
    for (const [name, value] of [...query]) if (value === "") query.delete(name);
    const text = query.toString();
    return form.action.split("?")[0] + (text ? `?${text}` : "");
  };
  const update = async () => {
    running?.abort();
    running = new AbortController();
    const url = address();
    try {
      const part = `${url}${url.includes("?") ? "&" : "?"}fragment=1`;
      const response = await fetch(part, { signal: running.signal, credentials: "same-origin" });
      if (!response.ok) { location.assign(url); return; }
      target.innerHTML = await response.text();
      if (target.dataset.follow) target.dataset.follow = url;
      const status = document.querySelector("[data-status]");
      if (status) status.textContent = target.querySelector(".count")?.textContent ?? "";
      history.replaceState(null, "", url);
    } catch (error) {
      if (error.name !== "AbortError") location.assign(url);
    }
  };
  const later = (delay) => { clearTimeout(timer); timer = setTimeout(update, delay); };
  form.addEventListener("input", (event) => later(event.target.type === "search" ? 120 : 0));
  form.addEventListener("submit", (event) => { event.preventDefault(); later(0); });
}

// Keyboard: "/" goes to the search, arrows move between items, Escape leaves the search.
const items = () => [...document.querySelectorAll("[data-item] a")];
const move = (step) => {
  const all = items();
  const index = all.indexOf(document.activeElement);
  const next = index < 0 ? (step > 0 ? 0 : -1) : index + step;
  const search = document.querySelector("[data-search]");
  if (next < 0) search?.focus(); else all[Math.min(next, all.length - 1)]?.focus();
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const field = event.target.closest?.("input, select, textarea, [contenteditable]");
  const search = document.querySelector("[data-search]");
  if (event.key === "/" && !field && search) {
    event.preventDefault();
    search.focus();
    search.select();
  } else if (event.key === "Escape" && field === search && search) {
    search.blur();
  } else if (event.key === "ArrowDown" && (field === search || document.activeElement.closest("[data-item]"))) {
    if (!items().length) return;
    event.preventDefault();
    move(1);
  } else if (event.key === "ArrowUp" && document.activeElement.closest("[data-item]")) {
    event.preventDefault();
    move(-1);
  }
});

// Upgrade graph: the bundle under the pointer or the focus is described beside the drawing. A click selects it, which
// changes the address. Arrows move between bundles, + and - zoom.
const graph = document.querySelector("[data-graph]");
if (graph) {
  const drawing = graph.querySelector("svg");
  const rows = [...drawing.querySelectorAll(".row")];
  const panel = document.getElementById("bundle");
  const element = (name, text) => Object.assign(document.createElement(name), { textContent: text });
  const describe = (row) => {
    const [name, ...lines] = row.querySelector("title").textContent.split("\n");
    const list = element("dl", "");
    list.className = "pairs";
    for (const line of lines) {
      const end = line.indexOf(": ");
      list.append(element("dt", end < 0 ? "Note" : line.slice(0, end)), element("dd", end < 0 ? line : line.slice(end + 2)));
    }
    const title = element("p", "");
    title.append(element("strong", name));
    panel.replaceChildren(element("h2", "Bundle"), title, list);
  };
  const selected = () => drawing.querySelector(".selected");
  const setQuery = (change) => {
    const address = new URL(location);
    change(address.searchParams);
    history.replaceState(null, "", address);
  };
  const select = (row) => {
    selected()?.removeAttribute("aria-current");
    selected()?.classList.remove("selected");
    row.classList.add("selected");
    row.setAttribute("aria-current", "true");
    const bundle = new URL(row.getAttribute("href"), location).searchParams.get("bundle");
    setQuery((query) => query.set("bundle", bundle));
    describe(row);
  };
  for (const row of rows) {
    row.addEventListener("mouseenter", () => describe(row));
    row.addEventListener("focus", () => describe(row));
    row.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      select(row);
    });
  }
  drawing.addEventListener("mouseleave", () => { if (selected()) describe(selected()); });
  const [, , width, height] = drawing.getAttribute("viewBox").split(" ").map(Number);
  const zoom = (change) => {
    const percent = Math.round(Math.min(400, Math.max(25, change(drawing.getAttribute("width") / width * 100))));
    drawing.setAttribute("width", width * percent / 100);
    drawing.setAttribute("height", height * percent / 100);
    setQuery((query) => query.set("zoom", percent));
  };
  const zooms = {
    in: (percent) => percent * 1.25,
    out: (percent) => percent / 1.25,
    reset: () => 100,
    fit: () => {
      const scroll = graph.querySelector(".scroll");
      const { paddingLeft, paddingRight } = getComputedStyle(scroll);
      const room = scroll.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
      return Math.floor(room / width * 100);
    },
  };
  for (const button of graph.querySelectorAll("[data-zoom]")) {
    button.hidden = false;
    button.addEventListener("click", (event) => { event.preventDefault(); zoom(zooms[button.dataset.zoom]); });
  }
  const print = graph.querySelector("[data-print]");
  print.hidden = false;
  print.addEventListener("click", () => window.print());
  graph.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const change = { "+": zooms.in, "=": zooms.in, "-": zooms.out, "0": zooms.reset }[event.key];
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    const index = rows.indexOf(document.activeElement);
    if (change) zoom(change);
    else if (step && index >= 0) rows[Math.min(rows.length - 1, Math.max(0, index + step))].focus();
    else return;
    event.preventDefault();
  });
  // The selected bundle, else the installed one, where the path begins.
  (selected() ?? drawing.querySelector(".step"))?.scrollIntoView({ block: "center" });
}

// Buttons with data-copy="ID" copy the text of the element ID.
for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    button.textContent = "Copied";
  });
}

// Ages count on. The clock of the browser may differ from that of the server.
const skew = Date.now() - (Date.parse(document.body.dataset.now) || Date.now());
const age = (at) => {
  const seconds = Math.max(0, Math.floor((Date.now() - skew - Date.parse(at)) / 1000));
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`;
  return seconds < 172_800 ? `${Math.floor(seconds / 3600)}h` : `${Math.floor(seconds / 86_400)}d`;
};
setInterval(() => {
  for (const time of document.querySelectorAll("time[data-suffix]")) {
    const text = age(time.dateTime) + time.dataset.suffix;
    if (time.textContent !== text) time.textContent = text;
  }
}, 1000);

// Filters are open where there is room for them.
if (matchMedia("(min-width: 56.01rem)").matches) {
  for (const more of document.querySelectorAll("details.more")) more.open = true;
}

// Elements with data-follow="URL" show the state of the cluster. The server answers when it changes, or after a while.
// What the user opened or closed stays so, and the focus stays on its element.
for (const element of document.querySelectorAll("[data-follow]")) {
  const status = document.querySelector("[data-follow-status]");
  const pause = (time) => new Promise((resolve) => { setTimeout(resolve, time); });
  const shown = () => new Promise((resolve) => {
    if (!document.hidden) resolve();
    else document.addEventListener("visibilitychange", resolve, { once: true });
  });
  const say = (text) => { if (status && status.textContent !== text) status.textContent = text; };
  const part = () => element.querySelector("[data-seen]");
  const toggled = new Map();
  element.addEventListener("click", (event) => {
    const details = event.target.closest("summary")?.parentElement;
    if (details?.id) toggled.set(details.id, !details.open);
  });
  const selector = (focused) => {
    if (!element.contains(focused)) return null;
    if (focused.matches("summary")) return `#${CSS.escape(focused.parentElement.id)} > summary`;
    if (focused.id) return `#${CSS.escape(focused.id)}`;
    return focused.matches("a[href]") ? `a[href="${CSS.escape(focused.getAttribute("href"))}"]` : null;
  };
  // Text that the user selects is not replaced.
  const isSelecting = () => !getSelection().isCollapsed && element.contains(getSelection().anchorNode);
  const scrolled = () => [...element.querySelectorAll("[tabindex][id]")]
    .filter((one) => !("tail" in one.dataset) || one.scrollTop + one.clientHeight < one.scrollHeight - 8).map((one) => [one.id, one.scrollTop, one.scrollLeft]);
  // The server answers within 10 s and the time of its reads.
  const slow = 20_000;
  const limit = 60_000;
  // A log is shown from its end, unless the user scrolled up.
  const tail = () => { for (const log of element.querySelectorAll("[data-tail]")) log.scrollTop = log.scrollHeight; };
  tail();
  let last = element.innerHTML;
  const show = (text) => {
    say(`Following changes. ${part()?.dataset.summary ?? ""}`);
    if (text === last || isSelecting()) return;
    last = text;
    const focus = selector(document.activeElement);
    const positions = scrolled();
    element.innerHTML = text;
    for (const [id, open] of toggled) {
      const details = document.getElementById(id);
      if (details) details.open = open;
    }
    tail();
    for (const [id, top, left] of positions) document.getElementById(id)?.scrollTo({ top, left, behavior: "instant" });
    if (focus) element.querySelector(focus)?.focus({ preventScroll: true });
    say(`Following changes. ${part()?.dataset.summary ?? ""}`);
  };
  const follow = async () => {
    say("Following changes.");
    for (;;) {
      await shown();
      if (isSelecting()) {
        say("Not up to date while text is selected.");
        await pause(1000);
        continue;
      }
      const query = new URLSearchParams({ fragment: "1", seen: part()?.dataset.seen ?? "" });
      const followed = element.dataset.follow;
      const address = new URL(followed, location);
      for (const [name, value] of query) address.searchParams.set(name, value);
      const waiting = setTimeout(() => say("Not up to date: no answer for 20 seconds."), slow);
      const asked = { credentials: "same-origin", signal: AbortSignal.timeout(limit) };
      const response = await fetch(address, asked).catch(() => null);
      const text = response?.ok ? await response.text().catch(() => null) : null;
      clearTimeout(waiting);
      // The user filtered the list in the meantime.
      if (followed !== element.dataset.follow) continue;
      if (text !== null) {
        show(text);
        await pause(1000);
      } else if (response?.status === 401 || response?.status === 404) {
        location.reload();
        return;
      } else if (response?.status === 503) {
        say("Not up to date: too many open pages follow the cluster. Close some of them.");
        await pause(5000);
      } else {
        say("Not up to date: the console or the cluster does not answer. The page retries every 5 seconds.");
        await pause(5000);
      }
    }
  };
  follow();
}
