// What pages need beyond htmx. Pages work without it: times are then shown in UTC, copying is done by hand and there
// are no keys.
"use strict";

// <button data-copy="text"> copies the text; <button data-copy-from="id"> copies what the element shows.
// The listener sits on the document, so buttons that arrive with a swap work too.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy], [data-copy-from]");
  if (!button) return;
  const source = document.getElementById(button.dataset.copyFrom ?? "");
  const text = button.dataset.copy ?? source?.textContent;
  if (text === undefined) return;
  let result = "copied";
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // The clipboard is closed to pages that are served without TLS from another host.
    result = "failed";
  }
  button.dataset.copied = result;
  announce(result === "copied" ? "Copied" : "The browser did not allow copying");
  setTimeout(() => delete button.dataset.copied, 1500);
});

// announce speaks to screen readers through the one live region of the page.
function announce(text) {
  let region = document.getElementById("announcer");
  if (!region) {
    region = document.createElement("div");
    region.id = "announcer";
    region.className = "visually-hidden";
    region.setAttribute("role", "status");
    document.body.append(region);
  }
  region.textContent = text;
}

// Times. A morph puts the text of the server back when it touches the element, hence the run after every swap.
//   <time datetime="…Z">                  a moment, in the zone of the reader: today without its date
//   <time datetime="…Z" data-ago>         how long ago that was: "12 s ago"
//   <time datetime="…Z" data-since>       how long it has been going on: "1:05"
//   <time datetime="…Z" data-until="gone"> how long is left: "4:12"; what the attribute says when that is over

const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const hour = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });

function clock(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  const two = (n) => String(n).padStart(2, "0");
  return s < 3600 ? `${Math.floor(s / 60)}:${two(s % 60)}` : `${Math.floor(s / 3600)}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}`;
}

function ago(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 2) return "now";
  if (s < 60) return `${s} s ago`;
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  return s < 86400 ? `${Math.floor(s / 3600)} h ago` : `${Math.floor(s / 86400)} d ago`;
}

function showTimes() {
  const now = Date.now();
  const today = new Date(now).toDateString();
  for (const element of document.querySelectorAll("time[datetime]")) {
    const at = new Date(element.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    const local = (at.toDateString() === today ? hour : day).format(at);
    const seconds = (now - at) / 1000;
    let text = local;
    if ("ago" in element.dataset) text = ago(seconds);
    else if ("since" in element.dataset) text = clock(seconds);
    else if ("until" in element.dataset) text = seconds < 0 ? clock(Math.ceil(-seconds)) : element.dataset.until;
    if (element.textContent !== text) {
      element.textContent = text;
      // "expired" tells an element around it that the time is over, once, and not for times that were over long before.
      if (text === element.dataset.until && seconds < 5) element.dispatchEvent(new CustomEvent("expired", { bubbles: true }));
    }
    const title = text === local ? element.dateTime : local;
    if (element.title !== title) element.title = title;
  }
}

document.addEventListener("DOMContentLoaded", showTimes);
document.addEventListener("htmx:after:swap", showTimes);
document.addEventListener("times", showTimes);
setInterval(() => { if (!document.hidden) showTimes(); }, 1000);

// <button data-open="id"> opens a dialog, <button data-close> closes the one it is in.
document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-open]");
  if (opener) {
    const dialog = document.getElementById(opener.dataset.open);
    if (dialog?.id === "keys") listKeys();
    dialog?.showModal();
  }
  event.target.closest("[data-close]")?.closest("dialog")?.close();
  if (event.target.localName === "dialog" && event.target === event.target.closest("dialog")) {
    const box = event.target.getBoundingClientRect(); // a click beside the dialog
    if (event.clientX < box.left || event.clientX > box.right || event.clientY < box.top || event.clientY > box.bottom) event.target.close();
  }
});

// Keys. Whatever has data-key="x" is clicked, or, when it is a field, focused by x. data-key-name names it in the list.
// j and k go through the elements with data-step.

const typing = (element) => element.closest?.("input, textarea, select, [contenteditable]") !== null;

function keyed(key) {
  for (const element of document.querySelectorAll("[data-key]")) {
    if (element.dataset.key === key && !element.disabled && element.checkVisibility()) return element;
  }
  return null;
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey && !event.altKey && !event.metaKey && event.key.toLowerCase() === "b") {
    const target = keyed("b");
    if (target) {
      event.preventDefault();
      target.click();
    }
    return;
  }
  if ((event.ctrlKey || event.metaKey) && event.key === "Enter" && event.target.form && typing(event.target)) {
    event.preventDefault();
    event.target.form.requestSubmit();
    return;
  }
  if (event.ctrlKey || event.altKey || event.metaKey || event.defaultPrevented) return;
  if (event.key === "Escape" && typing(event.target)) {
    event.target.blur();
    return;
  }
  if (typing(event.target) || document.querySelector("dialog[open]")) return;
  if (event.key === "j" || event.key === "k") {
    step(event.key === "j" ? 1 : -1);
    return;
  }
  const target = keyed(event.key);
  if (!target) return;
  event.preventDefault();
  if (typing(target)) target.focus();
  else target.click();
});

function step(by) {
  const steps = Array.from(document.querySelectorAll("[data-step]")).filter((e) => e.checkVisibility());
  if (steps.length === 0) return;
  const at = steps.findIndex((e) => e === document.activeElement || e.contains(document.activeElement));
  const next = at < 0 ? (by > 0 ? 0 : steps.length - 1) : Math.min(Math.max(at + by, 0), steps.length - 1);
  const target = steps[next].matches("a, button") ? steps[next] : steps[next].querySelector("a, button") ?? steps[next];
  target.focus();
  target.scrollIntoView({ block: "nearest" });
}

// listKeys fills the dialog with the keys that work on this page.
function listKeys() {
  const list = document.getElementById("keys-list");
  const rows = [];
  const add = (keys, name) => {
    const row = document.createElement("div");
    const term = document.createElement("dt");
    for (const key of keys) {
      const box = document.createElement("kbd");
      box.textContent = key;
      term.append(box, " ");
    }
    const text = document.createElement("dd");
    text.textContent = name;
    row.append(term, text);
    rows.push(row);
  };
  const seen = new Set();
  for (const element of document.querySelectorAll("[data-key]")) {
    const key = element.dataset.key;
    if (seen.has(key) || element.disabled || !element.checkVisibility()) continue;
    seen.add(key);
    add(key === "b" ? ["b", "Ctrl+B"] : [key], element.dataset.keyName ?? element.getAttribute("aria-label") ?? element.textContent.trim());
  }
  if (document.querySelector("[data-step]")) add(["j", "k"], "Next, previous");
  if (document.querySelector("textarea")) add(["Ctrl+Enter"], "Send what is typed");
  add(["Esc"], "Leave a field, close a dialog");
  list.replaceChildren(...rows);
}

// <form data-keep="name"> keeps what is typed in its fields in this tab until it is sent: a page that is closed by mistake
// or a server that is away must cost nobody their text.
{
  const field = (form, element) => `${form.dataset.keep}:${element.name}:${Array.from(form.querySelectorAll(`[name="${CSS.escape(element.name)}"]`)).indexOf(element)}`;
  const texts = (form) => form.querySelectorAll("textarea[name], input[type=text][name]");
  document.addEventListener("input", (event) => {
    const form = event.target.form;
    if (!form?.dataset.keep || !event.target.name || !event.target.matches("textarea, input[type=text]")) return;
    try {
      sessionStorage.setItem(field(form, event.target), event.target.value);
    } catch {
      // No storage, nothing kept.
    }
  });
  document.addEventListener("DOMContentLoaded", () => {
    for (const form of document.querySelectorAll("form[data-keep]")) {
      for (const element of texts(form)) {
        try {
          const kept = sessionStorage.getItem(field(form, element));
          if (kept && element.value === "") {
            element.value = kept;
            element.dispatchEvent(new Event("input", { bubbles: true }));
          }
        } catch {
          return;
        }
      }
    }
  });
}

// <form data-keep-form="name" data-fresh> is kept as a whole in this tab, hidden fields included: rows that were added,
// choices, and the key that makes a second sending start nothing. A fresh form, one that nobody typed in, is drawn again
// by its server with what was kept. It is forgotten when the server leads on to another page.
{
  const of = (element) => element?.closest?.("form[data-keep-form]");
  const slot = (form) => `form:${form.dataset.keepForm}`;
  const keep = (form) => {
    try {
      sessionStorage.setItem(slot(form), new URLSearchParams(new FormData(form)).toString());
    } catch {
      // No storage, nothing kept.
    }
  };
  document.addEventListener("input", (event) => {
    const form = of(event.target);
    if (form) keep(form);
  });
  document.addEventListener("DOMContentLoaded", async () => {
    const form = document.querySelector("form[data-keep-form][data-fresh]");
    let kept = null;
    try {
      kept = form && sessionStorage.getItem(slot(form));
    } catch {
      return;
    }
    if (!kept) return;
    const answer = await fetch(form.getAttribute("action"), {
      method: "POST", headers: { "HX-Request": "true" }, body: new URLSearchParams(`${kept}&action=restore`),
    }).catch(() => null);
    // What was typed meanwhile is newer.
    if (!answer?.ok || sessionStorage.getItem(slot(form)) !== kept) return;
    await htmx.swap({ sourceElement: form, target: form, text: await answer.text(), swap: "outerMorph" });
    announce("What you had typed is back");
  });
  document.addEventListener("htmx:after:swap", (event) => {
    const form = of(event.target);
    if (form && !("fresh" in form.dataset)) keep(form);
  });
  document.addEventListener("htmx:after:request", (event) => {
    const form = of(event.target);
    if (!form || !event.detail.ctx.hx?.redirect) return;
    sessionStorage.removeItem(slot(form));
    delete form.dataset.keepForm; // whatever is still typed while the next page loads is not wanted
  });
}

// <form data-send>: its text is taken out at once, so that the next one can be typed while this one is on its way. Each
// sending has a key of its own; one that fails comes back with it, before what was typed meanwhile.
{
  const sent = new WeakMap(); // by htmx's context of the request
  const parts = (form) => ({ text: form.querySelector("textarea"), key: form.querySelector("input[name=key]") });
  const set = (field, value) => {
    field.value = value;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  };
  // crypto.randomUUID is closed to pages without TLS.
  const newKey = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
  document.addEventListener("htmx:config:request", (event) => {
    const form = event.target;
    if (!form.matches("form[data-send]")) return;
    const { text, key } = parts(form);
    sent.set(event.detail.ctx, { text: text.value, key: key.value });
    set(text, "");
    key.value = newKey();
  });
  document.addEventListener("htmx:finally:request", (event) => {
    const before = sent.get(event.detail.ctx);
    if (!before) return;
    sent.delete(event.detail.ctx);
    if (event.detail.ctx.response?.status < 400) {
      document.getElementById("toast")?.replaceChildren();
      return;
    }
    const { text, key } = parts(event.target);
    if (text.value === "") key.value = before.key;
    set(text, text.value === "" ? before.text : `${before.text}\n${text.value}`);
  });
}

// <textarea data-enter="send">: Enter sends; Shift+Enter, and Enter while a word is composed, do not.
document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.target.dataset?.enter !== "send") return;
  event.preventDefault();
  if (event.target.value.trim() !== "") event.target.form.requestSubmit();
});

document.addEventListener("click", (event) => {
  event.target.closest("[data-dismiss]")?.closest(".toast")?.remove();
});

// A request of a form that got no answer. A quote that does not come is not worth a word; the next key asks for another.
document.addEventListener("htmx:error", (event) => {
  const toast = document.getElementById("toast");
  if (!toast || !event.target.matches("form, button")) return;
  const notice = document.createElement("div");
  notice.className = "notice toast";
  notice.dataset.kind = "error";
  const text = document.createElement("div");
  text.textContent = "The server did not answer. What you typed is still here: send it again. If it did arrive the first time, nothing is started twice.";
  const close = document.createElement("button");
  close.type = "button";
  close.className = "small quiet";
  close.dataset.dismiss = "";
  close.setAttribute("aria-label", "Dismiss");
  close.textContent = "✕";
  notice.append(text, close);
  toast.replaceChildren(notice);
});

// <details data-stays> stays as its reader left it while a form around it is drawn anew.
window.htmx?.registerExtension("forkyard-stays", {
  htmx_before_morph_attr: (element, detail) => !(detail.attrName === "open" && element.localName === "details" && "stays" in element.dataset),
});

// The banner about a key that is refused: the key belongs to no session, so that no stream tells about it. Pages ask for
// it while they are seen; the answer is empty when nothing changed.
function refreshBanner() {
  const banner = document.getElementById("provider-banner");
  if (banner && !document.hidden) banner.dispatchEvent(new CustomEvent("refresh"));
}
setInterval(refreshBanner, 10000);
document.addEventListener("visibilitychange", refreshBanner);

// A morph leaves what was typed; a key that is in use has no reason to stay in its field.
document.addEventListener("key-replaced", () => {
  const field = document.getElementById("api-key");
  if (field) field.value = "";
});
