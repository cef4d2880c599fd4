"use strict";
// Makes the pages faster to use. Every page works without it.

const box = document.querySelector("#q");
const results = document.querySelector("#results");
const summary = document.querySelector("#summary");
const welcome = document.querySelector("#welcome");

// What went wrong, in the words of the error page.
const said = (page) => page?.querySelector("h1 + p")?.textContent ?? "The server does not answer.";

// Search while typing. A new request cancels the one before.

const WAIT = 120; // milliseconds without a key press before a request
let timer = 0;
let searching = null;

async function search() {
  const wanted = box.value.trim();
  searching?.abort();
  searching = new AbortController();
  const address = new URLSearchParams({ q: wanted });
  try {
    const answer = await fetch(`/search/results/?${address}`, { signal: searching.signal });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const found = answer.ok ? page.querySelector("[data-summary]") : null;
    results.replaceChildren(...(found && wanted ? [found] : []));
    summary.textContent = found ? found.dataset.summary : said(page);
    if (welcome) welcome.hidden = wanted !== "";
    history.replaceState(null, "", wanted ? `/search/?${address}` : welcome ? "/" : "/search/");
  } catch (error) {
    if (error.name !== "AbortError") summary.textContent = said();
  }
}

if (box && results && summary) {
  box.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(search, WAIT);
  });
  // The box may contain text typed before this script loaded.
  if (welcome && box.value.trim()) search();
}

// Keys: / focuses the box, on a page without one that of the search; the arrows move through the results, Escape returns to the box.

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const here = document.activeElement;
  const isTyping = here && here !== box && here.matches("input, textarea, select");
  if (event.key === "/" && here !== box && !isTyping) {
    event.preventDefault();
    if (!box) return location.assign("/search/");
    box.focus();
    box.select();
    return;
  }
  if (!box) return;
  const links = results ? [...results.querySelectorAll(".rows a")] : [];
  const at = links.indexOf(here);
  if (!links.length || (here !== box && at < 0)) return;
  if (event.key === "ArrowDown") (links[at + 1] ?? here).focus();
  else if (event.key === "ArrowUp" && at >= 0) (links[at - 1] ?? box).focus();
  else if (event.key === "Escape" && at >= 0) box.focus();
  else return;
  event.preventDefault();
});

// Decode calldata as it is pasted. A new request cancels the one before.

const form = document.querySelector("form[data-decode]");
let decoding = null;

async function decode() {
  const decoded = document.querySelector("#decoded");
  decoding?.abort();
  decoding = new AbortController();
  history.replaceState(null, "", form.action); // until what is shown has an address
  if (!form.elements.data.value.trim()) return decoded.replaceChildren();
  const sent = { method: "POST", body: new URLSearchParams(new FormData(form)), signal: decoding.signal };
  try {
    const answer = await fetch(form.action, sent);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const found = page.querySelector("#decoded");
    decoded.replaceChildren(...(found?.childNodes ?? [said(page)]));
    summary.textContent = decoded.querySelector(".summary")?.textContent ?? "";
    form.elements.data.setAttribute("aria-invalid", !answer.ok);
    if (found) document.title = page.title;
    if (answer.redirected) history.replaceState(null, "", answer.url);
  } catch (error) {
    if (error.name !== "AbortError") decoded.textContent = said();
  }
}

if (form) {
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(decode, WAIT);
  });
  form.addEventListener("submit", (event) => {
    if (event.submitter?.name === "download") return;
    event.preventDefault();
    decode();
  });
}

// Run the examples of the API on the page.

const MAX_SHOWN = 20000; // characters of an answer

async function run(link) {
  const place = link.closest("[data-try]");
  const output = place.querySelector("output") ?? place.appendChild(document.createElement("output"));
  const shown = document.createElement("pre");
  shown.tabIndex = 0;
  shown.role = "group";
  shown.ariaLabel = "Answer";
  output.replaceChildren(shown);
  try {
    const answer = await fetch(link.href, { headers: { Accept: "application/json, text/*;q=0.9, */*;q=0.5" } });
    const reader = answer.body.getReader();
    const decoder = new TextDecoder();
    let text = "";
    for (let part = await reader.read(); ; part = await reader.read()) {
      text += decoder.decode(part.value, { stream: !part.done });
      if (part.done || text.length > MAX_SHOWN) break;
    }
    await reader.cancel();
    if (answer.headers.get("Content-Type")?.startsWith("application/json") && text.length <= MAX_SHOWN) {
      text = JSON.stringify(JSON.parse(text), null, 2);
    }
    shown.textContent = `${answer.status} ${answer.statusText}\n\n${text.slice(0, MAX_SHOWN)}${text.length > MAX_SHOWN ? "\n…" : ""}`;
  } catch {
    shown.textContent = said();
  }
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("[data-try] a");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  run(link);
});

// Copy buttons.

async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea"); // without TLS there is no navigator.clipboard
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  if (!done) throw new Error("the browser refused to copy");
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("button.copy");
  if (!button) return;
  try {
    const from = button.dataset.copyOf;
    await copy(from ? document.getElementById(from).textContent : button.dataset.copy);
    button.textContent = "Copied";
    button.classList.add("done");
  } catch {
    button.textContent = "Failed";
  }
  button.setAttribute("aria-live", "polite");
  button.focus();
  setTimeout(() => {
    button.textContent = "Copy";
    button.classList.remove("done");
  }, 1600);
});
